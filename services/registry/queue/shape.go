package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// sameShape compares two bodies but for workers, priority and labels.
func sameShape(a, b model.Spec) bool {
	return a.TargetSize == b.TargetSize && a.MaxAttempts == b.MaxAttempts && a.QueueTimeout == b.QueueTimeout &&
		a.Batch == b.Batch && startOf(a) == startOf(b) && onFailureOf(a) == onFailureOf(b) &&
		sameTask(a.Task, b.Task) && sameConstraints(a.Constraints, b.Constraints)
}

// startOf and onFailureOf fill in what a request may leave out. The mode of the
// batch is not filled in: unset, it is whatever the cluster's is at the time.
func startOf(s model.Spec) model.Start { return cmp.Or(s.Start, model.StartProgressive) }

func onFailureOf(s model.Spec) model.OnFailure { return cmp.Or(s.OnFailure, model.OnFailureRequeue) }

// sameBody compares the body of an upsert with the one that was asked for last.
func sameBody(u model.Upsert, r *model.Reservation) bool {
	spec := r.Spec
	spec.TargetSize = latestTarget(r)
	return sameShape(u.Spec, spec)
}

// latestTarget is the target size of the latest request for a version.
func latestTarget(r *model.Reservation) int32 {
	if r.LatestTarget != nil {
		return *r.LatestTarget
	}
	return r.Spec.TargetSize
}

func sameTask(a, b model.Task) bool {
	return a.Command == b.Command && a.StopGrace == b.StopGrace && slices.Equal(a.Args, b.Args) &&
		maps.Equal(a.Env, b.Env) && bytes.Equal(a.Payload, b.Payload)
}

// sameConstraints compares like matching does: without regard to case, and to
// the order of what is a set.
func sameConstraints(a, b constraint.Constraints) bool {
	return a.Canonical() == b.Canonical() && a.SameShape == b.SameShape && a.Spread == b.Spread && a.Pack == b.Pack &&
		slices.Equal(slices.Sorted(slices.Values(a.Avoid)), slices.Sorted(slices.Values(b.Avoid)))
}

// asked says whether the workers of an upsert are those that were asked for
// before: by the version that stands for the key, or by all living ones
// together, as when one adds to workers that run, or some were queued again,
// with those of the same batch that are COMPLETED or without. A started version
// is shown with the workers that were cancelled one by one, so naming exactly the
// workers shown asks for nothing new. A count does not name them.
func (l living) asked(u model.Upsert) bool {
	if asksFor(u, l.newestWorkers()) || u.Count == 0 && l.newest.started() && asksFor(u, l.newest.r.Workers) {
		return true
	}
	u.Workers = l.renumbered(u.Workers)
	all := l.wanted()
	return asksFor(u, all) || asksFor(u, l.withDone(all))
}

func asksFor(u model.Upsert, workers model.WorkerSet) bool {
	switch {
	case u.Count == 0:
		return workers.Equal(model.WorkerSetOf(u.Workers))
	case len(workers) == 0:
		return false
	}
	return workers[0].First == 0 && workers[len(workers)-1].Last == u.Count-1 && workers.Len() == int(u.Count)
}

// workers finds what an upsert has to queue: what it asks for and does not live.
// With a count the queued numbers stay, and all else takes its next unused
// number; an explicit number is one that is queued, or higher than any used.
func (c *Core) workers(u model.Upsert, l living) (model.WorkerSet, error) {
	live, queued := l.live(), l.queuedWorkers()
	var used model.WorkerSet
	if stage := c.stages[stageKey(u.Key)]; stage != nil {
		used = stage.Numbers
	}
	var list []model.WorkerID
	for index := range u.Count {
		if live.has(index) {
			continue
		}
		number, ok := queued.Number(index)
		if !ok {
			highest, _ := used.Number(index)
			if highest >= model.MaxRequested {
				return nil, fault.New(fault.Conflict, fault.ReasonWorkerIDUsed, "%s", noNumber(index, model.MaxRequested))
			}
			number = highest + 1
		}
		list = append(list, model.WorkerID{Index: index, Number: number})
	}
	for i, workerID := range l.renumbered(u.Workers) {
		if live.is(workerID) {
			continue
		}
		if highest, before := used.Number(workerID.Index); before && workerID.Number <= highest && !queued.Has(workerID) {
			err := fault.BadField(fault.ReasonWorkerIDUsed, fmt.Sprintf("workers[%d].number", i),
				"%d is used: the highest number of worker index %d is %d", workerID.Number, workerID.Index, highest)
			err.Kind = fault.Conflict
			return nil, err
		}
		list = append(list, workerID)
	}
	return model.WorkerSetOf(list), nil
}

// noNumber says that a worker index has used all its numbers.
func noNumber(index int32, highest int) string {
	return fmt.Sprintf("worker index %d has no number left: the highest is %d", index, highest)
}
