package queue

import (
	"cmp"
	"fmt"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// checkTarget refuses a target size below the number of requested workers. Those that the reservation
// shows although they have ended or were cancelled do not count, because the upsert does not start them
// again.
func (c *Core) checkTarget(u model.Upsert, l living) error {
	if u.Spec.TargetSize == 0 || int(u.Spec.TargetSize) >= len(u.Workers) {
		return nil
	}
	shown := union(slices.Concat(l.all(), l.done), func(v *version) model.WorkerSet { return v.r.Workers })
	if len(c.byKey[u.Key]) > 0 {
		shown = shown.Raise(c.reservationOf(u.Key).newest)
	}
	live := union(l.all(), (*version).unended)
	requested := 0
	for _, id := range c.renumber(l, u.Workers) {
		if !shown.Has(id) || live.Has(id) {
			requested++
		}
	}
	if int(u.Spec.TargetSize) >= requested {
		return nil
	}
	return request.BelowRequested(u.Spec.TargetSize, requested)
}

// surplus returns the workers that an upsert with STOP_HIGHEST stops, by version: those with the
// highest indexes among the workers of the stage that it does not request, until no more than its target
// size are left. It counts the workers that the upsert queues, and those of all living versions of the
// stage that have not ended or are queued again. The versions that it replaces do not count.
func (c *Core) surplus(u model.Upsert, l living, queued model.WorkerSet) (stops []removal) {
	if u.Spec.Shrink != model.ShrinkHighest {
		return nil
	}
	excess := queued.Len() - int(u.Spec.TargetSize)
	var counted []removal
	var own []model.WorkerSet
	for _, v := range c.versionsOf(stageKey(u.Key)) {
		if slices.Contains(l.queued, v) {
			continue
		}
		workers := c.counted(v, queued)
		counted = append(counted, removal{v: v, workers: workers})
		excess += workers.Len()
		if v.r.Key == u.Key {
			own = append(own, workers)
		}
	}
	if excess <= 0 {
		return nil
	}
	type candidate struct {
		of int // the place in counted
		id model.WorkerID
	}
	var candidates []candidate
	newest, listed := unionOf(own), model.WorkerSetOf(c.renumber(l, u.Workers))
	for i, r := range counted {
		for id := range r.workers.All() {
			number, named := listed.Number(id.Index)
			if id.Index < u.Count || named && number == request.NextNumber {
				number, named = newest.Number(id.Index)
			}
			if r.v.r.Key != u.Key || !named || number != id.Number {
				candidates = append(candidates, candidate{i, id})
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return b.id.Compare(a.id) })
	of := make([][]model.WorkerID, len(counted))
	for _, s := range candidates[:min(excess, len(candidates))] {
		of[s.of] = append(of[s.of], s.id)
	}
	for i, workers := range of {
		if len(workers) > 0 {
			stops = append(stops, removal{v: counted[i].v, workers: model.WorkerSetOf(workers)})
		}
	}
	return stops
}

// counted returns the workers of a version that count towards the target size of an upsert that queues
// some. If the task of the version was withdrawn, all its workers are queued again, except for those that
// have ended and that the upsert queues.
func (c *Core) counted(v *version, queued model.WorkerSet) model.WorkerSet {
	if !v.alive() || v.header == nil || !v.header.Withdrawn {
		return c.removable(v, v.r.Workers)
	}
	ended := slices.DeleteFunc(v.endedWorkers().List(), func(id model.WorkerID) bool {
		_, again := queued.Number(id.Index)
		return !again
	})
	return without(v.wanted(), model.WorkerSetOf(ended))
}

// checkShrink rejects an upsert if its stops would exceed a limit, or stop a worker whose end is to be
// that of the reservation.
func (c *Core) checkShrink(u model.Upsert, stops []removal) error {
	for i, index := range u.Spec.CompletesWith {
		for _, s := range stops {
			if _, stopped := s.workers.Number(index); stopped && s.v.r.Key == u.Key {
				return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("completesWith[%d]", i),
					"must not be the index of a worker that shrink stops, got %d", index)
			}
		}
	}
	return c.admitRemovals(u.Key.Job, stops)
}

// shrink lowers the target size of the stage as an upsert requests, and stops the workers beyond it.
// It must be called before the request is stored: a leader that stores the request has stopped all of
// them, and another one that does not find it stops the rest when the client repeats the call. It
// returns the living versions that are left, and the fields of the request that changed anything.
func (c *Core) shrink(u model.Upsert, l living, queued model.WorkerSet) (left living, changed request.Fields) {
	if c.retarget(u) {
		changed = request.FieldTargetSize
	}
	if stops := c.surplus(u, c.living(u.Key), queued); len(stops) > 0 {
		changed |= request.FieldShrink
		c.remove(stops, model.RequestMark{})
	}
	if changed == 0 {
		return l, 0
	}
	left = c.living(u.Key)
	left.newest = cmp.Or(left.newest, l.newest)
	return left, changed
}
