package queue

import (
	"container/heap"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// flight is the scheduling cycle in flight.
type flight struct {
	cycle, wake int64
	candidates  []candidate
	// left are the groups whose heads it had no room for.
	left []string
}

// candidate is one candidate of it.
type candidate struct {
	uid, group string
	mod        int64
	// again says that it is named only, avoids that it avoids executors for a time:
	// what is sent whole is not the same later.
	again, avoids bool
}

// found is how far the cycle got in one queue.
type found struct {
	// passed have room, or can never have; then one stopped it, or cut says that
	// the cycle ended before.
	passed                int
	granted, stopped, cut bool
}

// cursor is where a cycle has come to in one queue.
type cursor struct {
	group *group
	rank  int
	next  *model.Reservation
	// alone: its head is a candidate, and nothing behind it.
	alone bool
}

// cursors is a heap of queues by the next candidate of each, behind its head.
type cursors struct {
	compare func(a, b *model.Reservation) int
	list    []*cursor
}

func (h *cursors) Len() int           { return len(h.list) }
func (h *cursors) Less(i, j int) bool { return h.compare(h.list[i].next, h.list[j].next) < 0 }
func (h *cursors) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *cursors) Push(x any)         { h.list = append(h.list, x.(*cursor)) }
func (h *cursors) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}

// firstBehind is how many behind heads the first cycle of a term holds at most. Which
// queues have room is not known yet, and somebody waits for a leader's first grant.
const firstBehind = 32

// highestCycle bounds the numbers that the registry continues above.
const highestCycle = model.HighestJump + 1<<61

// sendCycle starts the next cycle: the heads of all queues, and behind each that may
// fit a prefix of its queue as far as the bounds allow, in the one order of all.
// It waits while anything is under way, so that every candidate is durable.
//
// Behind a head that did not fit nothing was granted, and nothing will be before
// it is: so the candidates of a queue are those that the last cycle found room for
// and one more, and twice as much once all of that has room.
//
// A cycle is one message. Where all heads would be too large for one it ends early, and
// the next one goes on where it ended: what was refused is named only by then.
//
// A head that did not fit is a candidate too, though nothing is known to have
// changed: executor-state may know of what became free before this view does,
// and a queue that happens to be woken first must not take it out of turn.
func (c *Core) sendCycle() {
	if !c.mayStartCycle() || c.now.Before(c.notBefore) {
		return
	}
	heads := make([]cursor, 0, len(c.groups))
	for id, g := range c.groups { // sorted next, without ties
		heads = append(heads, cursor{group: g, next: g.order.At(0), alone: c.due[id] == nil})
	}
	c.due = map[string]*group{}
	slices.SortFunc(heads, func(a, b cursor) int { return c.compare(a.next, b.next) })

	c.cycles++
	if c.cycles <= model.HighestJump {
		c.plainCycles = c.cycles
	}
	cycle := model.Cycle{Number: c.cycles, Term: c.term, Cut: c.revision}
	cycle.Candidates = make([]model.Candidate, 0, len(heads))
	c.flight = &flight{cycle: c.cycles, wake: c.wakes, candidates: make([]candidate, 0, len(heads))}
	candidates, workers, bytes := c.config.CycleCandidates, c.config.CycleWorkers, c.config.CycleBytes
	if c.cycles == 1 {
		candidates = min(candidates, firstBehind)
	}
	behind := &cursors{compare: c.compare}
	for len(heads) > 0 || behind.Len() > 0 {
		var at *cursor
		if behind.Len() == 0 || len(heads) > 0 && c.compare(heads[0].next, behind.list[0].next) < 0 {
			at, heads = &heads[0], heads[1:]
		} else {
			at = heap.Pop(behind).(*cursor)
			size := at.next.Workers.Len()
			if candidates == 0 || workers < size {
				continue
			}
			candidates--
			workers -= size
		}
		next := c.candidate(at.group, at.next)
		if bytes -= CandidateBytes(next); bytes < 0 && len(cycle.Candidates) > 0 {
			if at.rank == 0 {
				c.flight.left = append(c.flight.left, at.group.id)
			}
			for _, head := range heads {
				c.flight.left = append(c.flight.left, head.group.id)
			}
			break
		}
		c.versions[next.UID].inCycle = true
		c.flight.candidates = append(c.flight.candidates, candidate{
			uid: next.UID, group: next.Group, mod: next.Mod, again: next.Again,
			avoids: len(next.Constraints.AvoidFailed) > 0,
		})
		cycle.Candidates = append(cycle.Candidates, next)
		if at.rank++; !at.alone && at.rank != at.group.order.Len() && at.rank != at.group.depth {
			at.next = at.group.order.At(at.rank)
			heap.Push(behind, at)
		}
	}
	c.subject = model.Ref{}
	c.notBefore = c.now.Add(c.config.MinDelay)
	c.countCycle()
	c.out = append(c.out, cycle)
}

// mayStartCycle says whether a cycle may start, as soon as its time has come.
func (c *Core) mayStartCycle() bool {
	return c.isReady() && len(c.pending) == 0 && c.flight == nil && len(c.due) > 0
}

// retryCandidates makes the candidates of the cycle in flight those of the next one.
func (c *Core) retryCandidates() {
	for _, sent := range c.flight.candidates {
		if v := c.versions[sent.uid]; v != nil {
			v.inCycle = false
		}
		if g := c.groups[sent.group]; g != nil {
			c.due[g.id] = g
		}
	}
	c.goOn(c.flight)
	c.flight = nil
}

// goOn has the next cycle hold what this one had no room for.
func (c *Core) goOn(f *flight) {
	for _, id := range f.left {
		if g := c.groups[id]; g != nil {
			c.makeDue(g)
		}
	}
}

// refused says whether a reservation is named and no more: the cycle before found no room
// for it, and it has not changed since.
func (c *Core) refused(r *model.Reservation) bool {
	v := c.versions[r.UID]
	return v.refusedIn != 0 && v.refusedIn == c.cycles-1 && v.refusedMod == r.Mod
}

// candidate is a reservation as a cycle shows it.
func (c *Core) candidate(g *group, r *model.Reservation) model.Candidate {
	c.subject = r.Ref()
	if c.refused(r) {
		return model.Candidate{Key: r.Key, UID: r.UID, Mod: r.Mod, Group: g.id, Trace: r.Trace, Again: true}
	}
	return model.Candidate{
		Key: r.Key, UID: r.UID, Epoch: r.Epoch, Mod: r.Mod,
		Group: g.id, Constraints: r.ConstraintsAt(c.now), Workers: r.Workers, Trace: r.Trace,
	}
}

// cycleDone takes the outcome of the cycle in flight; any other is of the past. If it
// was refused for its number, because somebody else named a higher one in this term,
// the next cycle goes out at once with a number above that. If the number is too high
// for a new leader of executor-state, it follows what this leader has seen and the
// highest number in reach of any step: whatever went out with a number above that is
// refused by the new leader, too.
func (c *Core) cycleDone(done CycleDone) {
	if c.flight == nil || c.flight.cycle != done.Cycle {
		return
	}
	if done.Newest > c.cycles && done.Newest < highestCycle {
		c.cycles = done.Newest
		c.retryCandidates()
		return
	}
	if done.TooHigh && c.cycles > model.HighestJump && done.Newest < c.cycles {
		c.cycles = max(done.Newest, c.plainCycles)
		c.retryCandidates()
		return
	}
	f := c.flight
	c.flight = nil
	outcomes := make(map[string]*model.Outcome, len(done.Outcomes))
	for i := range done.Outcomes {
		outcomes[done.Outcomes[i].UID] = &done.Outcomes[i]
	}
	queues, further := map[string]found{}, false
	for _, sent := range f.candidates {
		v, outcome := c.versions[sent.uid], outcomes[sent.uid]
		if v != nil {
			v.inCycle = false
			if outcome == nil && sent.again {
				outcome = v.outcome
			}
		}
		if outcome == nil {
			continue
		}
		queues[sent.group] = queues[sent.group].then(*outcome)
		further = further || outcome.Result == model.Granted
		if int(outcome.Result) < len(c.counts.Candidates) {
			c.counts.Candidates[outcome.Result]++
		}
		if v != nil && v.waits() {
			if outcome.Result == model.NoFit && !hopeless(outcome) && !sent.avoids {
				v.refusedIn, v.refusedMod = f.cycle, sent.mod
				further = further || !sent.again
			}
			c.subject = v.r.Ref()
			c.outcome(v, outcome, f.wake)
		}
	}
	c.subject = model.Ref{}
	if further { // or else the next would end where this one did
		c.goOn(f)
	}
	for id, q := range queues {
		if g := c.groups[id]; g != nil {
			g.depth = q.depth(g.depth, c.config.CycleCandidates)
			if q.granted && !q.stopped && !q.cut {
				c.makeDue(g) // behind what can never have room, too
			}
		}
	}
	if len(c.due) == 0 {
		clear(c.causes[:])
	}
}

// then is how far it got with the outcome of the next candidate.
func (q found) then(o model.Outcome) found {
	switch {
	case q.stopped || q.cut:
	case o.Result == model.Granted, hopeless(&o):
		q.passed++
		q.granted = q.granted || o.Result == model.Granted
	case o.Result == model.Later:
		q.cut = true
	default:
		q.stopped = true
	}
	return q
}

// hopeless says that a candidate can never have room, and stops nobody.
func hopeless(o *model.Outcome) bool {
	return o.Result == model.NoFit && (o.Reason == fault.ReasonInvalid || o.Reason == fault.ReasonPoison)
}

// depth is how many candidates a queue has in the next cycle, if it had so many.
func (q found) depth(before, most int) int {
	switch {
	case q.stopped:
		return q.passed + 1
	case q.cut:
		return before
	case 2*before > most:
		return 0
	default:
		return 2 * before
	}
}

// outcome learns what became of one candidate. A head that does not fit waits for
// the next wake-up, unless one came while the cycle was in flight. One that was
// stale because it changed may be a candidate since it did; one that has not
// changed is ahead of executor-state's view, and waits for the next wake-up. One
// that the cycle did not get to is in the next, behind what is before it.
func (c *Core) outcome(v *version, o *model.Outcome, wake int64) {
	switch o.Result {
	case model.Granted:
		if o.Lease > c.viewed {
			c.granted[v.uid] = v
			c.update(v, func() { v.granted = o.Lease })
		}
	case model.NoFit:
		v.triedAt = c.now
		if v.outcome != o {
			kept := *o // and not the answer that it is a part of
			v.outcome, v.tried = &kept, v.r.Workers.Len()
			c.judge(v)
		}
		if wake == c.wakes && c.groups[v.group].order.At(0) == v.r {
			delete(c.due, v.group)
		}
	case model.Later:
		// Cycles that follow one another without a pause do not turn in vain:
		// executor-state is cut by what it has looked at, never before the first
		// candidate, and a candidate that it refused costs it nothing again until executors
		// change that concern it. So each cycle goes on where the last one was cut,
		// and where nothing changes there are as many as it takes to try all once.
		c.makeDue(c.groups[v.group])
	}
}
