package queue

import (
	"slices"

	"berth.dev/pkg/model"
)

// living is what of a key has not ended and is not being ended.
type living struct {
	// queued are the versions that wait, or hold a lease nobody has taken: at
	// most one of a strict batch, more where parts of one go ahead of the rest.
	queued []*version
	// requeues are those of workers that could not be started.
	requeues []*version
	// started are the versions the assigner has, those of requeues included.
	started []*version
	// done are those that are COMPLETED, or FAILED, of batches of which others are
	// living.
	done []*version
	// newest is the one that stands for all of them.
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
			continue
		case !v.is(model.Queued):
			continue
		case v.r.Origin == model.OriginRequeue:
			l.requeues = append(l.requeues, v)
		default:
			l.queued = append(l.queued, v)
		}
		l.newest = stands(l.newest, v)
	}
	if len(ended) > 0 {
		roots := map[*version]bool{}
		for _, v := range l.all() {
			roots[c.root(v)] = true
		}
		l.done = slices.DeleteFunc(ended, func(v *version) bool { return !roots[c.root(v)] })
	}
	return l
}

// all are the living versions.
func (l living) all() []*version { return slices.Concat(l.queued, l.started, l.requeues) }

// stands is which of two versions stands for their key, the older one given
// first: what was asked for before its parts, and those before requeues; and
// the newer one of equals.
func stands(older, newer *version) *version {
	rank := func(v *version) int {
		return slices.Index([]model.Origin{model.OriginRequeue, model.OriginPart, model.OriginAsked}, v.r.Origin)
	}
	if older != nil && rank(newer) < rank(older) {
		return older
	}
	return newer
}

// shown is the version of a key that is shown: the one that stands for those
// that have not ended, or else the newest.
func (c *Core) shown(key model.Key) *version {
	var shown *version
	for _, v := range c.byKey[key] {
		if !v.r.State.Terminal() {
			shown = stands(shown, v)
		}
	}
	if versions := c.byKey[key]; shown == nil && len(versions) > 0 {
		return versions[len(versions)-1]
	}
	return shown
}

// queuedWorkers are the workers that an upsert may replace.
func (l living) queuedWorkers() model.WorkerSet {
	var all model.WorkerSet
	for _, v := range l.queued {
		all = all.Raise(v.r.Workers)
	}
	return all
}

// queuedLike says whether all that an upsert may replace has its body.
func (l living) queuedLike(u model.Upsert) bool {
	return !slices.ContainsFunc(l.queued, func(v *version) bool { return !sameBody(u, v.r) })
}

// wanted are all workers that were asked for and not cancelled one by one, those
// that have ended included.
func (l living) wanted() model.WorkerSet {
	var all model.WorkerSet
	for _, v := range l.all() {
		all = all.Raise(v.wanted())
	}
	return all
}

// withDone adds the workers of what is done.
func (l living) withDone(all model.WorkerSet) model.WorkerSet {
	for _, v := range l.done {
		all = all.Raise(v.wanted())
	}
	return all
}

// others is what stands for the key without what an upsert may replace.
func (l living) others() *version {
	var other *version
	for _, v := range slices.Concat(l.started, l.requeues) {
		other = stands(other, v)
	}
	return other
}

// newestWorkers are the workers of the version that stands for the key; while
// that waits, of all that does with it.
func (l living) newestWorkers() model.WorkerSet {
	if slices.Contains(l.queued, l.newest) {
		return l.queuedWorkers()
	}
	return l.newest.wanted()
}

// renumbered answers the workers of an upsert, and for those that have been
// queued again since the numbers they have now.
func (l living) renumbered(workers []model.WorkerID) []model.WorkerID {
	now := slices.Clone(workers)
	for _, v := range l.all() {
		if v.r.Round == 0 {
			continue
		}
		for i, workerID := range workers {
			if current, ok := v.current(workerID); ok && !v.r.Unwanted.Has(current) {
				now[i] = current
			}
		}
	}
	return now
}

// current finds a worker of the version by its number or by that of an earlier
// round, each of which raised it by one.
func (v *version) current(workerID model.WorkerID) (model.WorkerID, bool) {
	number, ok := v.r.Workers.Number(workerID.Index)
	if !ok || workerID.Number > number || workerID.Number < number-v.r.Round {
		return model.WorkerID{}, false
	}
	return model.WorkerID{Index: workerID.Index, Number: number}, true
}

// root is the version that a version came of in the end, as a part, as the
// requeue of a worker or as a later round; itself if of none.
func (c *Core) root(v *version) *version {
	for {
		parent := c.versions[v.r.Parent]
		if parent == nil || parent.r == nil {
			return v
		}
		v = parent
	}
}

// descends says whether a version came of another, over any number of others.
func (c *Core) descends(v, from *version) bool {
	for v != nil && v.r != nil {
		if v.r.Parent == from.uid {
			return true
		}
		v = c.versions[v.r.Parent]
	}
	return false
}

// live are the workers that are not to be asked for again: those that have been
// dispatched, have not ended and are wanted, and those that are queued again.
type live []liveWorkers

type liveWorkers struct {
	workers model.WorkerSet
	ended   map[model.WorkerID]bool
}

func (l living) live() live {
	var all live
	for _, v := range l.started {
		if v.header != nil && v.header.Ended {
			continue
		}
		workers := liveWorkers{v.wanted(), map[model.WorkerID]bool{}}
		for _, chunk := range v.tasks {
			for _, w := range chunk.Workers {
				if w.State.Terminal() {
					workers.ended[w.ID] = true
				}
			}
		}
		all = append(all, workers)
	}
	for _, v := range l.requeues {
		all = append(all, liveWorkers{workers: v.r.Workers})
	}
	return all
}

// has says whether any number of the index lives.
func (l live) has(index int32) bool {
	for _, s := range l {
		if number, ok := s.workers.Number(index); ok && !s.ended[model.WorkerID{Index: index, Number: number}] {
			return true
		}
	}
	return false
}

// is says whether that very worker lives.
func (l live) is(workerID model.WorkerID) bool {
	for _, s := range l {
		if s.workers.Has(workerID) && !s.ended[workerID] {
			return true
		}
	}
	return false
}

// without answers the workers of which others were taken out.
func without(workers, others model.WorkerSet) model.WorkerSet {
	if len(others) == 0 {
		return workers
	}
	var left []model.WorkerID
	for workerID := range workers.All() {
		if !others.Has(workerID) {
			left = append(left, workerID)
		}
	}
	return model.WorkerSetOf(left)
}
