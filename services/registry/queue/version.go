package queue

import (
	"cmp"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// version is all that is known of one uid: its records, what calls in flight
// have told of it, and the indexes it stands in.
type version struct {
	uid    string
	r      *model.Reservation
	lease  map[int32]*model.LeaseChunk
	header *model.TaskHeader
	tasks  map[int32]*model.TaskChunk
	// spent are the workers, by chunk of the task, that no attempt started and
	// that are for the queue to queue again.
	spent map[int32][]model.TaskWorker
	// group is the queue's id, computed once: constraints never change.
	group string
	// stored is what r adds to what is stored of its job.
	stored usage

	// held: it is left alone.
	held bool

	// granted is the lease that a cycle granted and the view does not show yet;
	// taken and refused are what the assigner answered.
	granted int64
	taken   bool
	refused bool
	// inCycle is set while a cycle with it is in flight; outcome is the newest,
	// of as many workers as were tried.
	inCycle bool
	outcome *model.Outcome
	tried   int
	triedAt time.Time // when the outcome came
	// refusedIn is the cycle that found no room for it as it was at revision
	// refusedMod, which the next names only; 0 for none.
	refusedIn, refusedMod int64

	waiters []wait

	// Where it stands, to be found again when it moves.
	queued   *model.Reservation
	leased   *model.Reservation
	deadline time.Time
	// forgotten says that it is to be forgotten then, and not to expire.
	forgotten bool
}

// group is one strict queue.
type group struct {
	id      string
	order   core.Ordered[*model.Reservation]
	workers int
	// depth is how many from its head on a cycle holds at most, one more than
	// the last found room for; zero where the bounds of a cycle are the only ones.
	depth int
}

// deadline is when something is to be done about a version.
type deadline struct {
	at  time.Time
	uid string
}

func (d deadline) compare(o deadline) int {
	return cmp.Or(d.at.Compare(o.at), cmp.Compare(d.uid, o.uid))
}

// is says whether the version has a record in that state.
func (v *version) is(state model.State) bool { return v.r != nil && v.r.State == state }

// holdsLease says whether executors are leased to it, seen or just granted.
func (v *version) holdsLease() bool { return v.granted != 0 || len(v.lease) > 0 }

// leaseRevision is the create revision of its lease.
func (v *version) leaseRevision() int64 {
	for _, chunk := range v.lease { // all chunks are created by one transaction
		return chunk.Create
	}
	return v.granted
}

// waits says whether it stands in its queue: a lease takes it out, and so does
// a task, even one whose lease was taken from it again.
func (v *version) waits() bool {
	return v.is(model.Queued) && !v.holdsLease() && v.header == nil && !v.held
}

// started says whether the assigner has it: from the task header on it is
// ACTIVE to everyone, whether or not that is written yet.
func (v *version) started() bool {
	return v.is(model.Active) || v.is(model.Queued) && v.header != nil
}

// unsettledNow says whether its records, or what a cycle told of it, call for a
// change that no request asks for.
func (c *Core) unsettledNow(v *version) bool {
	switch {
	case v.held:
	case v.is(model.Queued):
		return v.dispatched() && v.goesOn() || v.header == nil && (v.refused || len(v.r.Unwanted) > 0) || c.splits(v)
	case v.is(model.Active):
		return c.owes(v) || len(v.lease) == 0 && (v.header == nil || v.header.Ended)
	case v.is(model.Cancelling):
		return v.header == nil || v.header.Ended && len(v.lease) == 0
	}
	return false
}

// dispatched says whether the assigner has all of it, and its record does not say
// so yet: that it is ACTIVE, which it is to everyone.
func (v *version) dispatched() bool {
	return v.is(model.Queued) && v.header != nil && v.header.Complete && !v.held
}

// goesOn says whether something follows on what was dispatched, which its record
// has to say first.
func (v *version) goesOn() bool {
	return v.header.Ended || v.header.Withdrawn || len(v.spent) > 0
}

// stopped says whether nothing of it will be started any more.
func (v *version) stopped() bool {
	return v.r == nil || v.r.State.Terminal() ||
		v.r.State == model.Cancelling && (v.header == nil || v.header.Stopping || v.header.Ended)
}

// wanted are the workers that were not cancelled one by one.
func (v *version) wanted() model.WorkerSet { return without(v.r.Workers, v.r.Unwanted) }

// unwanted are the workers that were cancelled one by one.
func (v *version) unwanted() model.WorkerSet {
	if v.r == nil {
		return nil
	}
	return v.r.Unwanted
}

// dueAt is when a version expires or is forgotten; zero for never. While there
// is one that came of it, it is kept.
func (c *Core) dueAt(v *version) time.Time {
	switch {
	case v.r == nil, v.held, v.r.State.Terminal() && c.children[v.uid] > 0:
		return time.Time{}
	case v.r.State.Terminal():
		return v.r.EndedAt.Add(c.config.KeepEnded)
	case v.waits() && v.r.Spec.QueueTimeout > 0:
		return v.r.CreatedAt.Add(v.r.Spec.QueueTimeout)
	}
	return time.Time{}
}
