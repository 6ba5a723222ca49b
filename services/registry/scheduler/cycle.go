package scheduler

import (
	"slices"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// flight is the scheduling cycle in flight.
type flight struct {
	number, wakes int64
	candidates    []candidate
	// unsent are the IDs of the groups whose heads did not fit into the message.
	unsent []string
}

// candidate is one candidate of the cycle in flight.
type candidate struct {
	entry    *Entry
	uid      string
	group    string
	revision int64
	// again reports that only its name was sent, avoids that it avoids executors for a
	// time. The latter is sent whole each time, since it changes by itself.
	again, avoids bool
}

// firstBehind bounds the candidates behind heads in the first cycle of a term. Which
// groups have capacity is not known yet, and a new leader's first grant should be fast.
const firstBehind = 32

// NextCycle returns from when on a cycle may start; zero means never.
func (s *Scheduler) NextCycle() time.Time {
	if s.flight != nil || len(s.due) == 0 {
		return time.Time{}
	}
	return s.notBefore
}

// StartCycle returns the next cycle, if one may start: the heads of all groups, and
// behind each due head a prefix of its group as far as the bounds allow, in the one
// order of all. Every reservation must be durable at the revision.
//
// Nothing behind a head that did not fit was granted, and nothing will be before the
// head is. So the depth of a group is what the last cycle found capacity for and one
// more, and doubles while all of it has capacity.
//
// A head that did not fit is a candidate although nothing is known to have changed:
// executor-state may know of freed capacity before this view does, and a group that is
// woken first must not take it out of turn.
func (s *Scheduler) StartCycle(now time.Time, revision int64) (cycle model.Cycle, started bool) {
	if s.flight != nil || len(s.due) == 0 || now.Before(s.notBefore) {
		return model.Cycle{}, false
	}
	f := s.frontier()
	s.begin(now)
	cycle = model.Cycle{Number: s.cycles, Term: s.term, Cut: revision, Candidates: make([]model.Candidate, 0, len(f.heads))}
	s.flight = &flight{number: s.cycles, wakes: s.wakes, candidates: make([]candidate, 0, len(f.heads))}
	for at := f.next(); at != nil; at = f.next() {
		next := s.candidate(at.next, now)
		if f.bytes -= request.CandidateSize(next); f.bytes < 0 && len(cycle.Candidates) > 0 {
			s.flight.unsent = f.groupsFrom(at)
			break
		}
		s.send(at.next, next)
		cycle.Candidates = append(cycle.Candidates, next)
		f.advance(at)
	}
	s.Subject = model.Ref{}
	return cycle, true
}

// begin numbers the next cycle and counts what triggered it.
func (s *Scheduler) begin(now time.Time) {
	s.cycles++
	if s.cycles <= model.HighestJump {
		s.reachable = s.cycles
	}
	s.notBefore = now.Add(s.config.MinDelay)
	s.due = map[string]*Group{}
	s.Counts.Cycles++
	for cause, had := range s.causes {
		if had {
			s.Counts.WakeUps[cause]++
		}
	}
	clear(s.causes[:])
}

// candidate returns a reservation as a cycle shows it: by its name if the last cycle
// found no capacity for it and it has not changed since.
func (s *Scheduler) candidate(e *Entry, now time.Time) model.Candidate {
	r := e.reservation
	s.Subject = r.Ref()
	if e.refusedIn != 0 && e.refusedIn == s.cycles-1 && e.refusedMod == r.Mod {
		return model.Candidate{Key: r.Key, UID: r.UID, Mod: r.Mod, Group: e.Group.ID, Trace: r.Trace, Again: true}
	}
	return model.Candidate{
		Key: r.Key, UID: r.UID, Epoch: r.Epoch, Mod: r.Mod,
		Group: e.Group.ID, Constraints: r.ConstraintsAt(now), Workers: r.Workers, Trace: r.Trace,
	}
}

// send adds a candidate to the cycle in flight.
func (s *Scheduler) send(e *Entry, sent model.Candidate) {
	e.InCycle = true
	s.flight.candidates = append(s.flight.candidates, candidate{
		entry: e, uid: sent.UID, group: sent.Group, revision: sent.Mod, again: sent.Again,
		avoids: len(sent.Constraints.AvoidFailed) > 0,
	})
}

// cursor is the next candidate of one group.
type cursor struct {
	group *Group
	rank  int
	next  *Entry
	// alone reports that only the head is a candidate, since the group is not due.
	alone bool
}

// frontier is how far the next cycle has got in each group, and what is left of the
// bounds of a cycle.
type frontier struct {
	compare func(a, b *Entry) int
	heads   []cursor              // of groups that it has not reached, in order
	behind  core.Ordered[*cursor] // of all others
	// candidates and workers are for candidates behind heads, bytes are for all.
	candidates, workers, bytes int
}

// frontier returns that of an empty cycle.
func (s *Scheduler) frontier() *frontier {
	f := &frontier{
		compare:    s.compareEntries,
		heads:      make([]cursor, 0, len(s.groups)),
		behind:     core.NewOrdered(func(a, b *cursor) int { return s.compareEntries(a.next, b.next) }),
		candidates: s.config.CycleCandidates, workers: s.config.CycleWorkers, bytes: s.config.CycleBytes,
	}
	if s.cycles == 0 {
		f.candidates = min(f.candidates, firstBehind)
	}
	for id, g := range s.groups { // sorted next, and no two are equal
		f.heads = append(f.heads, cursor{group: g, next: g.order.At(0), alone: s.due[id] == nil})
	}
	slices.SortFunc(f.heads, func(a, b cursor) int { return s.compareEntries(a.next, b.next) })
	return f
}

// next returns the cursor at the next candidate in the order of all groups; nil if
// there is none within the bounds.
func (f *frontier) next() *cursor {
	for {
		at, ok := f.behind.First()
		switch {
		case len(f.heads) > 0 && (!ok || f.compare(f.heads[0].next, at.next) < 0):
			at, f.heads = &f.heads[0], f.heads[1:]
			return at
		case !ok:
			return nil
		}
		f.behind.Delete(at)
		if workers := at.next.reservation.Workers.Len(); f.candidates > 0 && workers <= f.workers {
			f.candidates--
			f.workers -= workers
			return at
		}
	}
}

// advance moves a cursor to the next reservation of its group, if that may be a
// candidate.
func (f *frontier) advance(at *cursor) {
	at.rank++
	if at.alone || at.rank == at.group.Len() || at.rank == at.group.depth {
		return
	}
	at.next = at.group.order.At(at.rank)
	f.behind.Insert(at)
}

// groupsFrom returns the groups whose heads are not in a cycle that ends before a cursor.
func (f *frontier) groupsFrom(at *cursor) []string {
	var ids []string
	if at.rank == 0 {
		ids = append(ids, at.group.ID)
	}
	for _, head := range f.heads {
		ids = append(ids, head.group.ID)
	}
	return ids
}
