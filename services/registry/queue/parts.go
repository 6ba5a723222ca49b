package queue

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// splits reports whether a part of a version should go ahead: a cycle refused exactly the
// workers that the version has now, and some of them fitted.
func (c *Core) splits(v *version) bool {
	o, tried := v.entry.Outcome, v.entry.TriedWorkers
	return v.isPending() && o != nil && tried == v.r.Workers.Len() &&
		0 < o.Fitting && o.Fitting < tried && v.r.Spec.IsBestEffort(c.config.BestEffort)
}

// split queues the workers that fitted as a part, in the place of the batch and before
// the rest. The rest keeps its UID and has fewer workers. The effect fails if a later
// cycle has leased executors to all workers of the batch.
func (c *Core) split(v *version) {
	fitting, all := v.entry.Outcome.Fitting, v.r.Workers.List()
	part := c.newVersion(v.r)
	part.Origin, part.Parent = model.OriginPart, v.uid
	part.Latest = withoutList(part.Latest)
	part.Workers, part.Requests, part.Split = model.WorkerSetOf(all[:fitting]), nil, false
	part.PlaceEpoch = c.placeEpoch(v.r)
	part.Reason, part.Message = fault.ReasonPart, fmt.Sprintf("%d of %d workers fit", fitting, len(all))
	rest := c.edit(v.r)
	rest.Workers, rest.Split = model.WorkerSetOf(all[fitting:]), true
	c.decide(model.Effect{
		Puts:   []model.Record{part, rest},
		Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindLeaseChunk, ID: v.uid}, Absent: true}},
		Events: []model.JobEvent{c.event(model.EventReservationQueued, part)},
	})
}
