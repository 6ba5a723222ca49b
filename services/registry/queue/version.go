package queue

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// version is what the core knows of one UID: its records, the answers of calls whose
// effect the view does not show yet, and its places in the indexes.
type version struct {
	uid    string
	r      *model.Reservation
	lease  map[int32]*model.LeaseChunk
	header *model.TaskHeader
	tasks  map[int32]*model.TaskChunk
	// lostWorkers counts the workers of the lease on executors that are LOST or draining, while
	// the version awaits a bind.
	lostWorkers int
	// offer is what cells answered that were asked about the version; nil if none were.
	offer *model.Offer
	// returned holds the workers that no attempt started and that the assigner returned to
	// be requeued, by chunk of the task.
	returned map[int32][]model.TaskWorker
	// failed holds the workers that failed or were lost, by chunk of the task.
	failed map[int32][]*model.TaskWorker
	// workers counts the workers in tasks.
	workers taskCounts
	// stored is what the version contributes to the usage of its job.
	stored      usage
	quarantined bool
	// demand is the result of DemandAt at the last change of the version.
	demand model.Demand

	// granted is the revision of the lease that a cycle granted, while the view does not
	// show the lease yet. accepted and refused report the assigner's answer to a dispatch,
	// while the view does not show its effect yet.
	granted  int64
	accepted bool
	refused  bool

	// keepUntil is set for an ended version that is kept for longer than usual, because another
	// version of its reservation has ended later.
	keepUntil time.Time

	waits []wait

	// The version's places in the indexes; nil or zero if it is not in the index.
	entry    scheduler.Entry
	leased   *model.Reservation
	deadline deadline
	due      *core.Ordered[deadline] // the set that deadline is in
}

// deadline is when a version enters its queue, expires or is forgotten.
type deadline struct {
	at  time.Time
	uid string
}

func (d deadline) compare(o deadline) int {
	return cmp.Or(d.at.Compare(o.at), cmp.Compare(d.uid, o.uid))
}

// is reports whether the version has a record in this state.
func (v *version) is(state model.State) bool { return v.r != nil && v.r.State == state }

// alive reports whether a cancel would end the version.
func (v *version) alive() bool { return v.is(model.Queued) || v.is(model.Active) }

// hasLease reports whether executors are leased to the version: the view shows the lease,
// or a cycle has just granted it.
func (v *version) hasLease() bool { return v.granted != 0 || len(v.lease) > 0 }

// leaseOver reports whether nothing is leased to the version, except the shares of workers that
// are LOST and unconfirmed: these belong to the executors that do not answer, for as long as the
// workers may run, and the reservation does not wait for them.
func (v *version) leaseOver() bool {
	if v.workers.unconfirmed == 0 {
		return len(v.lease) == 0
	}
	left := 0
	for _, chunk := range v.lease {
		left += len(chunk.Workers)
	}
	return left <= int(v.workers.unconfirmed)
}

// leaseRevision returns the create revision of the version's lease.
func (v *version) leaseRevision() int64 {
	for _, chunk := range v.lease { // one transaction creates all chunks
		return chunk.Create
	}
	return v.granted
}

// demandAt returns what the version requests at a time. A lease ends its demand. So does a task,
// even if the lease was revoked since, and so do cells that hold.
func (v *version) demandAt(now time.Time) model.Demand {
	if v.r == nil {
		return model.NoDemand
	}
	return v.r.DemandAt(now, v.hasLease() || v.header != nil || v.heldByCells())
}

// isPending reports whether the version is in its group.
func (v *version) isPending() bool { return v.demand == model.DemandNow && !v.quarantined }

// isDelayed reports whether the version is in no group until its NotBefore.
func (v *version) isDelayed() bool { return v.demand == model.DemandLater }

// toDispatch reports whether the version has a lease that the assigner has not answered, and
// is not held.
func (v *version) toDispatch() bool {
	return v.is(model.Queued) && v.hasLease() && v.header == nil && !v.accepted && !v.refused && !v.quarantined &&
		!v.r.Holds()
}

// started reports whether the version was dispatched: its record says ACTIVE, or the view
// has its task header. A QUEUED version with a complete header is shown as ACTIVE.
func (v *version) started() bool {
	return v.is(model.Active) || v.is(model.Queued) && v.header != nil
}

// dispatched reports whether the assigner has the version's complete task, and the
// version's record does not say ACTIVE yet.
func (v *version) dispatched() bool {
	return v.is(model.Queued) && v.header != nil && v.header.Complete && !v.quarantined
}

// hasFollowUp reports whether a dispatched version calls for another change. That change
// requires a record that says ACTIVE.
func (v *version) hasFollowUp() bool {
	return v.header.Ended || v.header.Withdrawn || len(v.returned) > 0
}

// stopped reports whether no worker of the version will be started any more.
func (v *version) stopped() bool {
	return v.r == nil || v.r.State.Terminal() ||
		v.r.State == model.Cancelling && (v.header == nil || v.header.Stopping || v.header.Ended)
}

// wanted returns the workers that were not cancelled one by one.
func (v *version) wanted() model.WorkerSet { return without(v.r.Workers, v.r.Unwanted) }

// taskWorkers returns the workers of the version's task, in order of index.
func (v *version) taskWorkers() iter.Seq[model.TaskWorker] {
	return func(yield func(model.TaskWorker) bool) {
		for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
			for _, w := range v.tasks[n].Workers {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// endedWorkers returns the workers of the version's task that have ended.
func (v *version) endedWorkers() model.WorkerSet {
	var ended []model.WorkerID
	for w := range v.taskWorkers() {
		if w.State.Terminal() {
			ended = append(ended, w.ID)
		}
	}
	return model.WorkerSetOf(ended)
}

// taskCounts counts workers in tasks.
type taskCounts struct {
	states [model.WorkerEvicted + 1]int32
	// givenUp counts the ended workers that Berth does not queue again because their limit is
	// reached.
	givenUp int32
	// missing counts the ended workers that have ended for good; see endedForGood.
	missing int32
	// unconfirmed counts the ended workers whose executor may still start them.
	unconfirmed int32
}

func (k *taskCounts) sum(from, to model.WorkerState) (n int32) {
	for _, workers := range k.states[from : to+1] {
		n += workers
	}
	return n
}

// all returns the number of workers in tasks, and ended the number of those that have ended.
func (k *taskCounts) all() int     { return int(k.sum(model.WorkerAssigned, model.WorkerEvicted)) }
func (k *taskCounts) ended() int32 { return k.sum(model.WorkerCompleted, model.WorkerEvicted) }

// count adds the workers of a chunk of a task, or subtracts them if sign is -1.
func (k *taskCounts) count(chunk *model.TaskChunk, sign int32) {
	if chunk == nil {
		return
	}
	for i := range chunk.Workers {
		w := &chunk.Workers[i]
		k.states[w.State] += sign
		if !w.State.Terminal() {
			continue
		}
		if w.Unconfirmed {
			k.unconfirmed += sign
		}
		if w.Reason == fault.ReasonRoundsExhausted {
			k.givenUp += sign
		}
		if endedForGood(w) {
			k.missing += sign
		}
	}
}

// setFailed stores the workers of a chunk of the task that failed or were lost.
func (v *version) setFailed(n int32, chunk *model.TaskChunk) {
	delete(v.failed, n)
	if chunk == nil {
		return
	}
	var failed []*model.TaskWorker
	for i := range chunk.Workers {
		if s := chunk.Workers[i].State; s == model.WorkerFailed || s == model.WorkerLost {
			failed = append(failed, &chunk.Workers[i])
		}
	}
	if len(failed) == 0 {
		return
	}
	if v.failed == nil {
		v.failed = map[int32][]*model.TaskWorker{}
	}
	v.failed[n] = failed
}

// setReturned stores the workers of a chunk of the task that are to be requeued.
func (v *version) setReturned(n int32, record model.Record) {
	delete(v.returned, n)
	chunk, ok := record.(*model.TaskChunk)
	if !ok {
		return
	}
	returned := slices.DeleteFunc(slices.Clone(chunk.Workers), func(w model.TaskWorker) bool { return !w.Requeue })
	if len(returned) == 0 {
		return
	}
	if v.returned == nil {
		v.returned = map[int32][]model.TaskWorker{}
	}
	v.returned[n] = returned
}

// without returns the workers that are not among others.
func without(workers, others model.WorkerSet) model.WorkerSet {
	if len(others) == 0 {
		return workers
	}
	return model.WorkerSetOf(slices.DeleteFunc(workers.List(), others.Has))
}
