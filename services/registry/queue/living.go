package queue

import (
	"cmp"
	"fmt"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// living holds the versions of a key that have not ended and are not being cancelled, as
// an upsert finds them.
type living struct {
	// queued holds the versions that are pending, or leased and not dispatched. A gang has
	// at most one, and a batch whose parts go ahead may have several.
	queued []*version
	// requeues holds the queued versions of single workers that are queued again.
	requeues []*version
	// started holds the versions that the assigner has, including requeues, and the bound
	// versions that it gets. It also holds the rounds of gangs, which an upsert does not replace: like
	// requeues, they take the latest request.
	started []*version
	// done holds the COMPLETED and FAILED versions of batches that have living versions.
	done []*version
	// newest is the version that represents the key; see representative.
	newest *version
}

func (c *Core) living(key model.Key) living {
	var l living
	var ended []*version
	for _, v := range c.byKey[key] {
		switch {
		case v.started():
			l.started = append(l.started, v)
		case v.is(model.Completed), v.is(model.Failed):
			ended = append(ended, v)
		case !v.is(model.Queued):
		case v.isReplaceable():
			l.queued = append(l.queued, v)
		case v.r.Origin == model.OriginRequeue:
			l.requeues = append(l.requeues, v)
		default: // it is bound, or a round
			l.started = append(l.started, v)
		}
	}
	l.newest = representative(l.all())
	if len(ended) > 0 {
		roots := map[*version]bool{}
		for _, v := range l.all() {
			roots[c.root(v)] = true
		}
		l.done = slices.DeleteFunc(ended, func(v *version) bool { return !roots[c.root(v)] })
	}
	return l
}

// isReplaceable reports whether an upsert may replace the version: living has it among those that are queued
// as requested.
func (v *version) isReplaceable() bool {
	return v.is(model.Queued) && !v.started() && v.r.Origin != model.OriginRequeue && !v.isBound() && !v.isRound()
}

// all returns the living versions.
func (l living) all() []*version { return slices.Concat(l.queued, l.started, l.requeues) }

// representative returns the version that represents a key among some of its versions;
// nil if there are none. A requested version comes before a part, a part before a
// requeue, and a newer version before an older one.
func representative(versions []*version) *version {
	if len(versions) == 0 {
		return nil
	}
	rank := func(v *version) int {
		return slices.Index([]model.Origin{model.OriginRequeue, model.OriginPart, model.OriginRequested}, v.r.Origin)
	}
	return slices.MaxFunc(versions, func(a, b *version) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), byAge(a, b)) })
}

// queuedWorkers returns the workers of the versions that an upsert may replace.
func (l living) queuedWorkers() model.WorkerSet {
	return union(l.queued, func(v *version) model.WorkerSet { return v.r.Workers })
}

// allQueuedLike reports whether all versions that an upsert may replace have the body of
// the upsert.
func (l living) allQueuedLike(u *model.Upsert) bool {
	return !slices.ContainsFunc(l.queued, func(v *version) bool { return !request.SameBody(u, v.r) })
}

func union(versions []*version, workers func(*version) model.WorkerSet) model.WorkerSet {
	var all model.WorkerSet
	for _, v := range versions {
		all = all.Raise(workers(v))
	}
	return all
}

// hasWorkersOf reports whether an upsert requests the workers that were requested before:
// the workers of the version that represents the key, or the workers of all living
// versions, with or without the done versions of their batches. The second case occurs
// after an upsert added workers to running ones, and after requeues. A reservation is shown
// with the newest worker of each index, also if it has ended or was cancelled, so an upsert
// that names exactly the shown workers, or their number, requests nothing new. It does if it requests
// an index whose newest worker was cancelled.
func (c *Core) hasWorkersOf(l living, u model.Upsert) bool {
	if c.wantsCancelled(u) {
		return false
	}
	shown := l.newest.wanted()
	if slices.Contains(l.queued, l.newest) {
		shown = l.queuedWorkers()
	}
	if request.SameWorkers(u, shown) ||
		!request.AnyByIndex(u) && l.newest.started() && request.SameWorkers(u, l.newest.r.Workers) ||
		c.hasShownWorkersOf(l, u) {
		return true
	}
	u.Workers = c.renumber(l, u.Workers)
	wanted := union(l.all(), (*version).wanted)
	return request.SameWorkers(u, wanted) || request.SameWorkers(u, wanted.Raise(union(l.done, (*version).wanted)))
}

// hasShownWorkersOf reports whether an upsert requests exactly the workers with which a reservation is
// shown. With a count, it requests others if the latest request was for fewer. So does a list with
// workers without a number, for these.
func (c *Core) hasShownWorkersOf(l living, u model.Upsert) bool {
	if request.AnyByIndex(u) && c.requestedWorkers(l.newest.r).isSet() {
		return false
	}
	return request.SameWorkers(u, c.reservationOf(u.Key).newest)
}

// wantsCancelled reports whether an upsert requests a worker by its index, and the newest worker of the index
// was cancelled.
func (c *Core) wantsCancelled(u model.Upsert) bool {
	if !request.AnyByIndex(u) {
		return false
	}
	r := c.reservationOf(u.Key)
	left := r.newest
	for _, workers := range r.notCancelled() {
		left = without(left, workers)
	}
	listed := model.WorkerSetOf(u.Workers)
	return slices.ContainsFunc(left.List(), func(w model.WorkerID) bool {
		number, has := listed.Number(w.Index)
		return w.Index < u.Count || has && number == request.NextNumber
	})
}

// notCancelled returns the workers of a reservation that were not cancelled, as far as it is known.
func (r reservation) notCancelled() (sets []model.WorkerSet) {
	for _, v := range r.members {
		if v.alive() || v.is(model.Completed) || v.is(model.Failed) {
			sets = append(sets, v.wanted())
		}
	}
	for _, v := range r.past {
		for _, e := range v.r.Ends.Past {
			if !e.Cancelled {
				sets = append(sets, e.Workers)
			}
		}
		sets = append(sets, v.r.Ends.Counted)
	}
	return sets
}

// renumber returns the given workers, and replaces the numbers of requeued workers by
// their current numbers.
func (c *Core) renumber(l living, workers []model.WorkerID) []model.WorkerID {
	now := slices.Clone(workers)
	for _, v := range l.all() {
		if v.r.Round == 0 {
			continue
		}
		for i, workerID := range workers {
			if workerID.Number == request.NextNumber {
				continue
			}
			if current, ok := c.current(v, workerID); ok && !v.r.Unwanted.Has(current) {
				now[i] = current
			}
		}
	}
	return now
}

// alive returns the workers that an upsert does not queue again, one set for each
// version: the wanted workers that were dispatched and have not ended, and the requeued
// workers.
func (l living) alive() []model.WorkerSet {
	var alive []model.WorkerSet
	for _, v := range l.started {
		switch {
		case v.restarts(): // all its workers are queued again
			alive = append(alive, v.wanted())
		case v.header == nil || !v.header.Ended:
			alive = append(alive, without(v.wanted(), v.endedWorkers()))
		}
	}
	for _, v := range l.requeues {
		alive = append(alive, v.r.Workers)
	}
	return alive
}

// workersToQueue returns the workers that an upsert requests and that are not alive. If
// the upsert has a count, or lists workers without a number, queued workers keep their numbers
// and all others take the next unused number. An explicit number must belong to a queued worker
// or be higher than any used number. If known is set, the upsert names the workers that the reservation
// shows or the list of the latest request, and numbers that were used name no new workers.
func (c *Core) workersToQueue(u model.Upsert, l living, known bool) (model.WorkerSet, error) {
	alive, queued, used := l.alive(), l.queuedWorkers(), c.stage(u.Key).Numbers
	var list []model.WorkerID
	add := func(index int32) error {
		if slices.ContainsFunc(alive, func(s model.WorkerSet) bool { _, has := s.Number(index); return has }) {
			return nil
		}
		number, ok := queued.Number(index)
		if !ok {
			highest, _ := used.Number(index)
			if highest >= model.MaxRequested {
				return fault.New(fault.Conflict, fault.ReasonWorkerIDUsed, "%s", noNumberLeft(index, model.MaxRequested))
			}
			number = highest + 1
		}
		list = append(list, model.WorkerID{Index: index, Number: number})
		return nil
	}
	for index := range u.Count {
		if err := add(index); err != nil {
			return nil, err
		}
	}
	for i, workerID := range c.renumber(l, u.Workers) {
		if workerID.Number == request.NextNumber {
			if err := add(workerID.Index); err != nil {
				return nil, err
			}
			continue
		}
		if slices.ContainsFunc(alive, func(s model.WorkerSet) bool { return s.Has(workerID) }) {
			continue
		}
		if highest, has := used.Number(workerID.Index); has && workerID.Number <= highest && !queued.Has(workerID) {
			if known {
				continue
			}
			err := fault.BadField(fault.ReasonWorkerIDUsed, fmt.Sprintf("workers[%d].number", i),
				"must be higher than %d, which worker index %d has used, got %d", highest, workerID.Index, workerID.Number)
			err.Kind = fault.Conflict
			return nil, err
		}
		list = append(list, workerID)
	}
	return model.WorkerSetOf(list), nil
}

func noNumberLeft(index int32, highest int) string {
	return fmt.Sprintf("worker index %d has used all its numbers up to %d", index, highest)
}

// root returns the oldest known ancestor of a version that is a part, a requeue or a
// later round. It returns the version itself if its parent is not known.
func (c *Core) root(v *version) *version {
	for {
		parent := c.versions[v.r.Parent]
		if parent == nil || parent.r == nil {
			return v
		}
		v = parent
	}
}

// descends reports whether v has workers of from, or continues them: from is an ancestor of
// v, or both are requeues of one worker and v is the later one.
func (c *Core) descends(v, from *version) bool {
	for v != nil && v.r != nil {
		if v.r.Parent == from.uid || v != from && v.continues(from) {
			return true
		}
		v = c.versions[v.r.Parent]
	}
	return false
}

// continues reports whether both versions are requeues of one worker, and v is the later one: of a
// later round, or it replaces the other one. A parent has one worker of an index, so requeues of
// one parent and index are of one worker.
func (v *version) continues(from *version) bool {
	return v.r.Origin == model.OriginRequeue && from.r.Origin == model.OriginRequeue &&
		v.r.Parent == from.r.Parent && cmp.Or(cmp.Compare(v.r.Round, from.r.Round), byAge(v, from)) > 0 &&
		v.r.FirstIndex() == from.r.FirstIndex()
}
