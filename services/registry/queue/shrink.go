package queue

import (
	"cmp"
	"fmt"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// surplus returns the workers that an upsert with STOP_HIGHEST stops, by version: those with the
// highest indexes among the workers of the stage that it does not name, until no more than its target
// size are left. It counts the workers that the upsert queues, and those of all living versions of the
// stage that have not ended or are queued again. The versions that it replaces do not count.
func (c *Core) surplus(u model.Upsert, l living, queued model.WorkerSet) []removal {
	if u.Spec.Shrink != model.ShrinkHighest {
		return nil
	}
	type candidate struct {
		v  *version
		id model.WorkerID
	}
	excess := queued.Len() - int(u.Spec.TargetSize)
	living := map[*version]model.WorkerSet{}
	versions := slices.DeleteFunc(c.versionsOf(stageKey(u.Key)), func(v *version) bool { return slices.Contains(l.queued, v) })
	for _, v := range versions {
		if living[v] = c.removable(v, v.r.Workers); v.restarts() { // all its workers are queued again
			living[v] = v.wanted()
		}
		excess += living[v].Len()
	}
	if excess <= 0 {
		return nil
	}
	named := model.WorkerSetOf(c.renumber(l, u.Workers))
	var candidates []candidate
	for _, v := range versions {
		for id := range living[v].All() {
			number, listed := named.Number(id.Index)
			stays := v.r.Key == u.Key && (id.Index < u.Count || listed && (number == request.NextNumber || number == id.Number))
			if !stays {
				candidates = append(candidates, candidate{v, id})
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return b.id.Compare(a.id) })
	stops := map[*version][]model.WorkerID{}
	for _, s := range candidates[:min(excess, len(candidates))] {
		stops[s.v] = append(stops[s.v], s.id)
	}
	var removals []removal
	for _, v := range versions {
		if len(stops[v]) > 0 {
			removals = append(removals, removal{v: v, workers: model.WorkerSetOf(stops[v])})
		}
	}
	return removals
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
