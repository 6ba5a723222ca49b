package inventory

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// The constraints spread, sameShape and pack hold for a reservation, not for one version of it:
// a grant counts the workers of all other versions that have executors. A worker counts while
// its share of a lease exists, so one that is being stopped or is quarantined counts, and one
// that has ended or whose executor is LOST does not. Nor does one that was given up because its
// executor does not answer, as if the executor were LOST for it: its replacement may need the same
// domain, or another shape, and its index would count twice. The home of a volume counts while a
// version wants the volume, because its next worker starts there.
//
// A constraint may have changed since the other workers were placed. Where they break it, no
// further worker is placed.

// gang holds the leases of all versions of one reservation.
type gang struct {
	// first is the first lease of the list that lease.next continues.
	first *lease
	// changed is the number of the last change of these leases.
	changed uint64
	// workers counts the workers of the leases by ordinal; nil until a candidate needs it.
	workers map[uint32]int
}

// joinGang adds a new lease to its gang.
func (c *Core) joinGang(l *lease) {
	g := c.gangs[l.of]
	if l.next = g.first; l.next != nil {
		l.next.prev = l
	}
	g.first = l
	c.gangs[l.of] = g
}

// moveGang counts the change of a chunk of a lease. It removes a lease without chunks from its
// gang.
func (c *Core) moveGang(l *lease, prev, next *model.LeaseChunk) {
	g := c.gangs[l.of]
	c.leaseChanges++
	g.changed = c.leaseChanges
	if g.workers != nil {
		c.countGang(g, prev, -1)
		c.countGang(g, next, 1)
	}
	if len(l.chunks) == 0 {
		if l.next != nil {
			l.next.prev = l.prev
		}
		if l.prev != nil {
			l.prev.next = l.next
		} else if g.first = l.next; g.first == nil {
			delete(c.gangs, l.of)
			return
		}
	}
	c.gangs[l.of] = g
}

// recountGang makes the workers of the gang of a lease count anew.
func (c *Core) recountGang(uid string) {
	if l := c.leases[uid]; l != nil {
		g := c.gangs[l.of]
		c.leaseChanges++
		g.changed, g.workers = c.leaseChanges, nil
		c.gangs[l.of] = g
	}
}

// observeGivenUp notes the workers of a chunk that were given up. They stay so once their executor has
// confirmed the end.
func (c *Core) observeGivenUp(uid string, t *task, next *entry) {
	if next == nil {
		return
	}
	known := len(t.givenUp)
	workers := next.record.(*model.TaskChunk).Workers
	for i := range workers {
		if !workers[i].Unconfirmed {
			continue
		}
		if t.givenUp == nil {
			t.givenUp = map[model.WorkerID]bool{}
		}
		t.givenUp[workers[i].ID] = true
	}
	if len(t.givenUp) != known {
		c.recountGang(uid)
	}
}

// countGang adds the workers of a chunk n times to those of a gang. A worker that was given up counts
// only if its next worker has to start where its volume is.
func (c *Core) countGang(g gang, chunk *model.LeaseChunk, n int) {
	var givenUp map[model.WorkerID]bool
	if t := c.tasks[chunk.UID]; t != nil && !chunk.OnVolumes {
		givenUp = t.givenUp
	}
	for _, p := range chunk.Workers {
		if givenUp[p.Worker] {
			continue
		}
		if g.workers[p.Ordinal] += n; g.workers[p.Ordinal] == 0 {
			delete(g.workers, p.Ordinal)
		}
	}
}

// gangChange returns the number of the last change of the leases of a candidate's reservation,
// if such a change may turn a refusal of the candidate into a grant; otherwise 0.
func (c *Core) gangChange(e model.Candidate) uint64 {
	if !e.Constraints.SameShape && e.Constraints.Spread.Max <= 0 {
		return 0
	}
	return c.gangs[e.Key].changed
}

// pinned counts, by executor, the workers of a reservation that have executors, and for which a
// volume keeps one, except the indexes of the version with a UID. It returns nil if none of the
// constraints considers them.
func (c *Core) pinned(key model.Key, uid string, k constraint.Constraints,
	own model.WorkerSet) map[*match.Executor]int {
	if !k.SameShape && !k.Pack && k.Spread.Max <= 0 {
		return nil
	}
	return c.otherWorkers(key, uid, own)
}

// ifEmpty adds to the message of a refusal how many of the needed workers the fleet could hold if it were
// empty, in addition to the other workers of the reservation, if that is too few. homes counts those of the
// version that start where their volumes are.
func (c *Core) ifEmpty(reason fault.Reason, message string, e model.Candidate, needed int,
	homes map[*match.Executor]int) string {
	if reason != fault.ReasonInsufficientCapacity {
		return message
	}
	others := match.Together(homes, c.otherWorkers(e.Key, e.UID, e.Workers))
	if text := c.index.IfEmpty(e.Constraints, needed, others); text != "" {
		message += "; " + text
	}
	return message
}

// otherWorkers counts, by executor, the workers of a reservation that have executors, and for which a volume
// keeps one, except the indexes of the version with a UID.
func (c *Core) otherWorkers(key model.Key, uid string, own model.WorkerSet) map[*match.Executor]int {
	var pinned map[*match.Executor]int
	add := func(ordinal uint32, n int) {
		h := c.hostOf(ordinal)
		if h == nil || h.Record.Cell || h.state == model.ExecutorLost {
			return
		}
		if pinned == nil {
			pinned = map[*match.Executor]int{}
		}
		pinned[&h.Executor.Executor] += n
	}
	if g := c.gangs[key]; g.first != nil {
		if g.workers == nil {
			g.workers = map[uint32]int{}
			for l := g.first; l != nil; l = l.next {
				for _, chunk := range l.chunks {
					c.countGang(g, chunkOf(chunk), 1)
				}
			}
			c.gangs[key] = g
		}
		c.index.Work += len(g.workers)
		for ordinal, n := range g.workers {
			add(ordinal, n)
		}
	}
	for ordinal := range c.keptHomes(key, uid, own) {
		add(ordinal, 1)
	}
	return pinned
}

// keptHomes iterates over the homes of volumes without a leased worker that the versions of a
// reservation want, except those of the version with a UID and of its own workers.
func (c *Core) keptHomes(key model.Key, uid string, own model.WorkerSet) func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		s := c.stages[stageOf(key)]
		if s == nil {
			return
		}
		seen := map[int32]bool{}
		for _, r := range s.wanting {
			if r.Key != key || r.UID == uid || r.State != model.Queued && r.State != model.Active {
				continue
			}
			c.index.Work += r.Workers.Len()
			for worker := range r.Workers.All() {
				if _, isOwn := own.Number(worker.Index); isOwn || seen[worker.Index] || r.Unwanted.Has(worker) ||
					len(s.holders[worker.Index]) > 0 {
					continue
				}
				seen[worker.Index] = true
				if v := s.current(worker.Index); v != nil && v.State != model.VolumeLost && !yield(v.Ordinal) {
					return
				}
			}
		}
	}
}
