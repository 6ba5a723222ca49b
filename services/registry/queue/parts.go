package queue

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// bestEffort says whether workers may start without the others of their batch:
// as the request says, or else the cluster. What is to start together never
// does. It is looked at when it matters and never stored, so that the cluster's
// mode may change while reservations wait.
func (c *Core) bestEffort(spec model.Spec) bool {
	if spec.Start == model.StartTogether {
		return false
	}
	if spec.Batch == model.BatchUnset {
		return c.config.BestEffort
	}
	return spec.Batch == model.BatchBestEffort
}

// splits says whether the part of a version that fitted is to go ahead: a cycle
// refused just the workers that it has now, and some of them fitted.
func (c *Core) splits(v *version) bool {
	return v.waits() && v.outcome != nil && v.tried == v.r.Workers.Len() &&
		0 < v.outcome.Fitting && v.outcome.Fitting < v.tried && c.bestEffort(v.r.Spec)
}

// split queues the workers that fitted as a part of their own, in the place of
// the batch and before the rest of it. The rest stays what it is, but smaller,
// which must not happen to what a later cycle has leased as a whole.
func (c *Core) split(v *version) {
	fitting, all := v.outcome.Fitting, v.r.Workers.List()
	part := c.edit(v.r)
	part.UID, part.Epoch = c.newUID(), 0
	part.Origin, part.Parent = model.OriginPart, v.uid
	part.Workers, part.Requests = model.WorkerSetOf(all[:fitting]), nil
	part.PlaceEpoch = c.placeEpoch(v.r)
	part.Reason, part.Message = fault.ReasonPart, fmt.Sprintf("%d of %d workers fit", fitting, len(all))
	rest := c.edit(v.r)
	rest.Workers = model.WorkerSetOf(all[fitting:])
	c.decide(model.Effect{
		Puts:   []model.Record{part, rest},
		Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindLeaseChunk, ID: v.uid}, Absent: true}},
		Events: []model.JobEvent{c.event(model.EventReservationQueued, part)},
	})
}
