package queue

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// version is what the core knows of one UID: its records, what calls in flight have
// answered, and its places in the indexes.
type version struct {
	uid    string
	r      *model.Reservation
	lease  map[int32]*model.LeaseChunk
	header *model.TaskHeader
	tasks  map[int32]*model.TaskChunk
	// returned are the workers, by chunk of the task, that no attempt started and that
	// the assigner returned to be requeued.
	returned map[int32][]model.TaskWorker
	// stored is what r adds to the usage of its job.
	stored      usage
	quarantined bool

	// granted is the lease that a cycle granted and the view does not show yet. The
	// assigner accepted or refused the version, and the view does not show it yet.
	granted  int64
	accepted bool
	refused  bool

	waits []wait

	// The places in indexes: each is the item there, nil or zero without one.
	entry    scheduler.Entry
	leased   *model.Reservation
	deadline deadline
	due      *core.Ordered[deadline] // the set that deadline is in
}

// deadline is when a version expires or is forgotten.
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

// hasLease reports whether executors are leased to the version, in the view or just
// granted.
func (v *version) hasLease() bool { return v.granted != 0 || len(v.lease) > 0 }

// leaseRevision returns the create revision of its lease.
func (v *version) leaseRevision() int64 {
	for _, chunk := range v.lease { // one transaction creates all chunks
		return chunk.Create
	}
	return v.granted
}

// isPending reports whether the version is in its group. A lease takes it out. So does a
// task, even if its lease was revoked since.
func (v *version) isPending() bool {
	return v.is(model.Queued) && !v.hasLease() && v.header == nil && !v.quarantined
}

// toDispatch reports whether the version has a lease that the assigner has not answered.
func (v *version) toDispatch() bool {
	return v.is(model.Queued) && v.hasLease() && v.header == nil && !v.accepted && !v.refused && !v.quarantined
}

// started reports whether the assigner has the version. From the task header on it is
// shown as ACTIVE, whether or not its record says so yet.
func (v *version) started() bool {
	return v.is(model.Active) || v.is(model.Queued) && v.header != nil
}

// dispatched reports whether the assigner has all of the version, and its record does
// not say ACTIVE yet.
func (v *version) dispatched() bool {
	return v.is(model.Queued) && v.header != nil && v.header.Complete && !v.quarantined
}

// hasFollowUp reports whether a dispatched version calls for another change, which
// requires its record to say ACTIVE first.
func (v *version) hasFollowUp() bool {
	return v.header.Ended || v.header.Withdrawn || len(v.returned) > 0
}

// stopped reports whether none of its workers will be started any more.
func (v *version) stopped() bool {
	return v.r == nil || v.r.State.Terminal() ||
		v.r.State == model.Cancelling && (v.header == nil || v.header.Stopping || v.header.Ended)
}

// wanted returns the workers that were not cancelled one by one.
func (v *version) wanted() model.WorkerSet { return without(v.r.Workers, v.r.Unwanted) }

// taskWorkers returns the workers of its task, in order of index.
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

// endedWorkers returns the workers of its task that have ended.
func (v *version) endedWorkers() model.WorkerSet {
	var ended []model.WorkerID
	for w := range v.taskWorkers() {
		if w.State.Terminal() {
			ended = append(ended, w.ID)
		}
	}
	return model.WorkerSetOf(ended)
}

// setReturned keeps the workers of a chunk of the task that are to be requeued.
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

// current returns a worker of the version by its number or by that of an earlier round.
// Each round raised the numbers by one.
func (v *version) current(workerID model.WorkerID) (model.WorkerID, bool) {
	number, ok := v.r.Workers.Number(workerID.Index)
	if !ok || workerID.Number > number || workerID.Number < number-v.r.Round {
		return model.WorkerID{}, false
	}
	return model.WorkerID{Index: workerID.Index, Number: number}, true
}

// without returns the workers that are not among others.
func without(workers, others model.WorkerSet) model.WorkerSet {
	if len(others) == 0 {
		return workers
	}
	return model.WorkerSetOf(slices.DeleteFunc(workers.List(), others.Has))
}
