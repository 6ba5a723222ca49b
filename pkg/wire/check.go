package wire

import (
	"fmt"
	"math"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// The limits of a stored record. No service of Berth writes a record that exceeds them. A
// core that calculates with such a record could panic, run out of memory, or grant
// capacity that does not exist.
const (
	maxRevision    = 1 << 62
	maxLeaseChunks = (model.MaxWorkers + model.LeaseChunkSize - 1) / model.LeaseChunkSize
	maxTaskChunks  = (model.MaxWorkers + model.TaskChunkSize - 1) / model.TaskChunkSize
	maxVolumeChunk = model.MaxIndex / model.VolumeChunkSize
)

// check returns an error for a decoded record that no service writes. If check returns
// nil, the record is safe to calculate with, but not necessarily correct: only its writer
// knows whether it is.
func check(ref model.Ref, record model.Record) error {
	var c checks
	switch r := record.(type) {
	case *model.Reservation:
		c.reservation(r)
	case *model.Stage:
		c.within("targetSize", int64(r.TargetSize), 0, math.MaxInt32)
		c.workers("numbers", r.Numbers, math.MaxInt)
	case *model.Executor:
		c.within("ordinal", int64(r.Ordinal), 1, math.MaxUint32)
		c.within("incarnation", r.Incarnation, 0, maxRevision)
		c.amounts("resources", r.Resources)
		c.grace("drainGrace", r.DrainGrace)
		for role, share := range r.Reserved {
			c.amounts("reserved."+role, share)
		}
		c.within("former", int64(len(r.Former)), 0, model.MaxFormer)
		c.within("removals", int64(len(r.Removals)), 0, model.MaxRemovals)
	case *model.Live:
		c.within("incarnation", r.Incarnation, 1, maxRevision)
	case *model.Refusal:
		c.within("incarnation", r.Incarnation, 1, maxRevision)
	case *model.Forgotten:
		c.within("ordinal", int64(r.Ordinal), 1, math.MaxUint32)
		c.within("incarnation", r.Incarnation, 0, maxRevision)
	case *model.LeaseChunk:
		c.within("chunks", int64(r.Chunks), 1, maxLeaseChunks)
		c.within("the key's chunk", int64(r.Chunk), 0, int64(r.Chunks)-1)
		c.within("total", int64(r.Total), 1, model.MaxWorkers)
		c.within("workers", int64(len(r.Workers)), 0, model.LeaseChunkSize)
		c.within("epoch", r.Epoch, 0, maxRevision)
		c.within("cut", r.Cut, 0, maxRevision)
		c.amounts("each", r.Each)
		if r.Rating != nil {
			c.within("rating", int64(*r.Rating), 0, 100)
		}
		for i := range r.Workers {
			c.workerID(i, r.Workers[i].Worker)
		}
	case *model.VolumeChunk:
		c.volumes(r)
	case *model.Offer:
		c.offer(r)
	case *model.TaskHeader:
		c.within("chunks", int64(r.Chunks), 0, maxTaskChunks)
		c.within("workers", int64(r.Workers), 0, model.MaxWorkers)
		c.within("epoch", r.Epoch, 0, maxRevision)
		c.within("lease", r.Lease, 0, maxRevision)
	case *model.TaskChunk:
		c.task(r)
	case *model.SKU:
		c.named(ref, r.Name)
		c.amounts("resources", r.Resources)
		if rule := r.Scale; rule != nil {
			c.scale(rule)
		}
	case *model.Pool:
		c.named(ref, r.Name)
		if r.LostAfter != nil {
			c.within("lostAfter", int64(*r.LostAfter), 0, math.MaxInt64)
		}
	case *model.Disable:
		c.grace("grace", r.Grace)
		c.that(!r.CreatedAt.IsZero(), "createdAt: is required")
		c.within("undone", int64(r.Undone), 0, math.MaxInt32)
	case *model.Ready:
		c.that(!r.Since.IsZero() || !r.Begun.IsZero(), "since: is required, or begun")
	case *model.Poison:
		c.within("kind", int64(r.Kind), int64(model.PoisonRequest), int64(model.PoisonWork))
	}
	return c.err
}

// checks collects the results of checks and stores the first error.
type checks struct{ err error }

func (c *checks) that(holds bool, format string, args ...any) {
	if !holds && c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *checks) within(field string, got, least, most int64) {
	c.that(got >= least && got <= most, "%s: must be between %d and %d, got %d", field, least, most, got)
}

func (c *checks) grace(field string, d *time.Duration) {
	c.that(d == nil || *d >= 0, "%s: must not be negative", field)
}

func (c *checks) workers(field string, workers model.WorkerSet, most int) {
	if err := workers.Check(most); err != nil {
		c.that(false, "%s: %v", field, err)
	}
}

// requested checks the workers that a request lists. One without a number has the number 0.
func (c *checks) requested(field string, workers model.WorkerSet) {
	set := slices.Clone(workers)
	for i := range set {
		if set[i].Number == 0 {
			set[i].Number = 1
		}
	}
	c.workers(field, set, model.MaxWorkers)
}

func (c *checks) workerID(i int, s model.WorkerID) {
	c.that(s.Index >= 0 && s.Index <= model.MaxIndex && s.Number >= 1 && s.Number <= model.MaxNumber,
		"workers[%d]: %d.%d is not a worker ID", i, s.Index, s.Number)
}

func (c *checks) amounts(field string, v resource.Vector) {
	for name, amount := range v {
		c.that(amount >= 0, "%s.%s: must not be negative, got %d", field, name, amount)
	}
}

func (c *checks) named(ref model.Ref, name string) {
	c.that(name == ref.ID, "name: must be that of the key, %q, got %q", ref.ID, name)
}

func (c *checks) scale(rule *model.ScaleRule) {
	for _, size := range []*int32{&rule.MinIdle, rule.MaxIdle, &rule.MinSize, rule.MaxSize} {
		if size != nil {
			c.within("scale", int64(*size), 0, math.MaxInt32)
		}
	}
	c.within("scale.cooldown", int64(rule.Cooldown), 0, math.MaxInt64)
}

func (c *checks) ends(field string, ends []model.End) {
	for _, e := range ends {
		c.that(e.State == model.WorkerUnset || e.State.Terminal(), "%s: %d is no final state", field, e.State)
		c.workers(field, e.Workers, math.MaxInt32)
		c.within(field, int64(e.More), 0, math.MaxInt32)
	}
}

// numbers checks the earlier numbers of a worker.
func (c *checks) numbers(field string, ranges []model.NumberRange) {
	c.within(field, int64(len(ranges)), 0, model.MaxEarlier)
	least := int64(1)
	for i, n := range ranges {
		c.that(int64(n.First) >= least && n.Last >= n.First && n.Last <= model.MaxNumber,
			"%s[%d]: must be numbers between %d and %d, got %d to %d", field, i, least, model.MaxNumber, n.First, n.Last)
		least = int64(n.Last) + 1
	}
}

func (c *checks) reservation(r *model.Reservation) {
	c.within("state", int64(r.State), int64(model.Queued), int64(model.Replaced))
	c.workers("workers", r.Workers, model.MaxWorkers)
	c.workers("unwanted", r.Unwanted, model.MaxWorkers)
	c.workers("requeued", r.Requeued, model.MaxWorkers)
	c.workers("missing", r.Missing, model.MaxWorkers)
	c.within("stopGraces", int64(len(r.StopGraces)), 0, model.MaxStopGraces)
	for _, g := range r.StopGraces {
		c.within("stopGraces.grace", int64(g.Grace), 0, math.MaxInt64)
		c.workers("stopGraces.workers", g.Workers, model.MaxWorkers)
	}
	if r.Ends != nil {
		c.ends("ends", r.Ends.Own)
		c.ends("pastEnds", r.Ends.Past)
		c.workers("counted", r.Ends.Counted, math.MaxInt32)
	}
	c.numbers("earlier", r.Earlier)
	c.within("earlierOf", int64(len(r.EarlierOf)), 0, model.MaxEarlierOf)
	for _, e := range r.EarlierOf {
		c.workers("earlierOf.workers", e.Workers, model.MaxWorkers)
		c.numbers("earlierOf.numbers", e.Numbers)
	}
	c.within("continues", int64(len(r.Continues)), 0, model.MaxContinues)
	for _, epoch := range r.Continues {
		c.within("continues", epoch, 1, maxRevision)
	}
	c.within("place", r.Place, 0, math.MaxInt64)
	c.within("placeEpoch", r.PlaceEpoch, 0, maxRevision)
	c.within("refusedEpoch", r.RefusedEpoch, 0, maxRevision)
	c.within("origin", int64(r.Origin), int64(model.OriginRequested), int64(model.OriginPart))
	c.within("round", int64(r.Round), 0, math.MaxInt32)
	c.within("failures", int64(r.Failures), 0, math.MaxInt32-1)
	for _, mark := range r.Requests {
		c.within("requests.change", int64(mark.Change), 0, int64(model.Updated))
	}
	c.spec("spec", &r.Spec)
	if l := r.Latest; l != nil {
		c.within("latest.count", int64(l.Count), 0, model.MaxWorkers)
		c.requested("latest.workers", l.Workers)
		c.spec("latest.spec", &l.Spec)
	}
}

func (c *checks) spec(name string, s *model.Spec) {
	c.within(name+".targetSize", int64(s.TargetSize), 0, math.MaxInt32)
	c.amounts(name+".constraints.resources", s.Constraints.Resources)
	c.within(name+".constraints.spread.max", int64(s.Constraints.Spread.Max), 0, math.MaxInt32)
	c.within(name+".priority.class", int64(s.Priority.Class), 0, int64(model.ClassNewJob))
	c.within(name+".batch", int64(s.Batch), 0, int64(model.BatchBestEffort))
	c.within(name+".start", int64(s.Start), 0, int64(model.StartTogether))
	c.within(name+".onAssignmentFailure", int64(s.OnFailure), 0, int64(model.OnFailureNotify))
	c.within(name+".maxAttempts", int64(s.MaxAttempts), 0, math.MaxInt32)
	c.within(name+".queueTimeout", int64(s.QueueTimeout), 0, math.MaxInt64)
	c.within(name+".task.stopGrace", int64(s.Task.StopGrace), 0, math.MaxInt64)
	c.within(name+".task.startTimeout", int64(s.Task.StartTimeout), 0, math.MaxInt64)
	c.within(name+".task.readiness", int64(s.Task.Readiness), 0, int64(model.ReadyReported))
	c.within(name+".lifetime.for", int64(s.Lifetime.For), 0, math.MaxInt64)
	c.within(name+".maxRestarts", int64(s.RestartLimit()), -1, math.MaxInt32)
	c.within(name+".holdTimeout", int64(s.HoldLimit()), 0, math.MaxInt64)
	if v := s.Volume; v != nil {
		c.that(v.Resource != "", "%s.volume.resource: is required", name)
		c.keepFor(name+".volume.keepFor", v.KeepFor)
	}
}

func (c *checks) task(r *model.TaskChunk) {
	c.within("the key's chunk", int64(r.Chunk), 0, maxTaskChunks-1)
	c.within("workers", int64(len(r.Workers)), 1, model.TaskChunkSize)
	for i := range r.Workers {
		w := &r.Workers[i]
		c.workerID(i, w.ID)
		c.that(w.State >= model.WorkerAssigned && w.State <= model.WorkerEvicted, "workers[%d].state: %d is not a state", i,
			w.State)
		c.that(w.Attempts >= 0, "workers[%d].attempts: must not be negative, got %d", i, w.Attempts)
	}
}

// enum converts a stored enum, which may be any number, to an enum of the model, which
// has 8 bits. If the number does not fit, enum returns a number that check refuses.
func enum[M ~uint8, N ~int32](n N) M {
	if n < 0 || n > math.MaxUint8 {
		return math.MaxUint8
	}
	return M(n)
}

// recovered converts a panic of decoding to an error, because no stored value may end a
// process.
func recovered(err *error) {
	if what := recover(); what != nil {
		*err = fault.New(fault.Internal, fault.ReasonInternal, "decoding panicked: %v", what)
	}
}
