package scheduler

import (
	"cmp"
	"container/heap"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// flight is the state of the scheduling cycle in flight.
type flight struct {
	cycle   model.Cycle
	entries []*Entry // the entries of its candidates
	wakes   int64
	// unsent are the IDs of the groups whose heads did not fit into the message.
	unsent []string
	// bounded is the index from which on the bounds left out candidates behind heads; 0 if
	// they left out none.
	bounded int
	// end is the index from which on no candidate was tried, so that none overtakes a
	// reservation that was not sent. It is set when the outcomes are known.
	end int
}

// firstBehind bounds the candidates behind heads in the first cycle of a term. The new
// leader does not know yet which groups have capacity, and its first grant should be
// fast.
const firstBehind = 32

// NextCycle returns the earliest time at which a cycle may start; zero means never.
func (s *Scheduler) NextCycle() time.Time {
	if s.flight != nil || len(s.due) == 0 {
		return time.Time{}
	}
	return s.notBefore
}

// StartCycle returns the next cycle, if one may start. Its candidates are the heads of
// all groups, and behind each due head a prefix of its group as far as the bounds allow.
// All candidates are in the one order across groups. Every reservation must be durable at
// the revision.
//
// Executor-state grants nothing behind a head that did not fit, until it grants the head.
// So the depth of a group is the number of candidates for which the last cycle found
// capacity, and one more. The depth doubles while all candidates have capacity.
//
// A head that did not fit is a candidate in every cycle, although no change is known.
// Executor-state may know of freed capacity before this view does, and a group that is
// woken first must not get that capacity out of turn. Such a head does not trigger a
// cycle itself: only the next wake-up makes it due.
//
// The bounds and the depth end a group within the cycle although it continues. Then
// Candidate.NextAt says where its next reservation stands, so that no candidate of another
// group overtakes that reservation.
func (s *Scheduler) StartCycle(now time.Time, revision int64) (cycle model.Cycle, started bool) {
	if s.flight != nil || len(s.due) == 0 || now.Before(s.notBefore) {
		return model.Cycle{}, false
	}
	front := s.frontier()
	s.begin(now)
	f := &flight{cycle: model.Cycle{Number: s.cycles, Term: s.term, Cut: revision}, wakes: s.wakes}
	f.cycle.Candidates = make([]model.Candidate, 0, len(front.cursors))
	for at := front.next(nil); at != nil; at = front.next(f.cycle.Candidates) {
		next := s.candidate(at.next, now)
		if front.bytes -= request.CandidateSize(next); front.bytes < 0 && len(f.entries) > 0 {
			f.unsent = front.heads()
			break
		}
		at.next.InCycle = true
		f.entries = append(f.entries, at.next)
		f.cycle.Candidates = append(f.cycle.Candidates, next)
		front.advance(len(f.entries) - 1)
	}
	f.bounded = front.bounded
	s.flight = f
	s.Subject = model.Ref{}
	return f.cycle, true
}

// begin gives the next cycle its number, clears the due groups, and counts the causes
// that triggered the cycle.
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

// candidate returns a reservation as a candidate of the next cycle. It sends only the
// name if the last cycle found no capacity for the reservation, and the reservation has
// not changed since. A reservation for cells is always sent whole, because it may fit now without a
// change of its record: its cells have answered.
func (s *Scheduler) candidate(e *Entry, now time.Time) model.Candidate {
	r := e.reservation
	s.Subject = r.Ref()
	splits := r.Spec.IsBestEffort(s.config.BestEffort)
	if !r.Spec.Constraints.Cells && e.refusedIn != 0 && e.refusedIn == s.cycles-1 && e.refusedMod == r.Mod {
		return model.Candidate{Key: r.Key, UID: r.UID, Mod: r.Mod, Group: e.Group.ID, Trace: r.Trace, Unchanged: true,
			Splits: splits}
	}
	return model.Candidate{
		Key: r.Key, UID: r.UID, Epoch: r.Epoch, Mod: r.Mod,
		Group: e.Group.ID, Constraints: r.ConstraintsAt(now), Workers: r.Workers, Trace: r.Trace,
		Volume: r.Spec.Volume, Hold: r.Holds(), Chosen: r.Chosen, Splits: splits,
	}
}

// cursor points to the next candidate of one group, or to the next reservation of a group
// that has no more candidates.
type cursor struct {
	group *Group
	next  *Entry
	rank  int32
	// last is the index of the group's last candidate.
	last int32
	// alone reports whether only the head is a candidate, because the group is not due. ended
	// reports whether next is no candidate.
	alone, ended bool
}

// frontier holds the next reservation of each group, and what is left of the bounds of a
// cycle. It is a heap: the first cursor points to the next reservation in the order of all
// groups.
type frontier struct {
	compare func(a, b *Entry) int
	cursors []cursor
	// open counts the cursors that have not ended.
	open int
	// candidates and workers bound the candidates behind heads, bytes bounds all candidates.
	candidates, workers, bytes int
	// bounded has the same meaning as in flight.
	bounded int
}

func (f *frontier) Len() int           { return len(f.cursors) }
func (f *frontier) Less(i, j int) bool { return f.compare(f.cursors[i].next, f.cursors[j].next) < 0 }
func (f *frontier) Swap(i, j int)      { f.cursors[i], f.cursors[j] = f.cursors[j], f.cursors[i] }
func (f *frontier) Push(any)           { panic("scheduler: a cycle got another group") }
func (f *frontier) Pop() any {
	f.cursors = f.cursors[:len(f.cursors)-1]
	return nil
}

// frontier returns the frontier of an empty cycle.
func (s *Scheduler) frontier() *frontier {
	f := &frontier{
		compare: s.compareEntries, cursors: make([]cursor, 0, len(s.groups)),
		candidates: s.config.CycleCandidates, workers: s.config.CycleWorkers, bytes: s.config.CycleBytes,
	}
	if s.cycles == 0 {
		f.candidates = min(f.candidates, firstBehind)
	}
	for id, g := range s.groups { // the order of the map does not matter: no two heads are equal
		f.cursors = append(f.cursors, cursor{group: g, next: g.order.At(0), alone: s.due[id] == nil})
	}
	f.open = len(f.cursors)
	heap.Init(f)
	return f
}

// next returns the cursor at the next candidate in the order of all groups; nil if the
// bounds allow no more. If a group ends before that candidate, next sets NextAt of the
// group's last candidate among those sent.
func (f *frontier) next(sent []model.Candidate) *cursor {
	for ; f.open > 0; heap.Pop(f) {
		at := &f.cursors[0]
		if at.rank == 0 {
			return at
		}
		if !at.ended {
			if workers := at.next.reservation.Workers.Len(); f.candidates > 0 && workers <= f.workers {
				f.candidates--
				f.workers -= workers
				return at
			}
			f.open--
			f.bounded = cmp.Or(f.bounded, len(sent))
		}
		sent[at.last].NextAt = int32(len(sent))
	}
	return nil
}

// advance moves the first cursor to the next reservation of its group, after its candidate
// with the index last. If there is no other reservation, it removes the cursor.
func (f *frontier) advance(last int) {
	at := &f.cursors[0]
	at.rank++
	rank := int(at.rank)
	at.last, at.ended = int32(last), at.alone || rank == at.group.depth
	if at.ended || rank == at.group.Len() {
		f.open--
	}
	if rank == at.group.Len() {
		heap.Pop(f)
		return
	}
	at.next = at.group.order.At(rank)
	heap.Fix(f, 0)
}

// heads returns the groups whose heads are not in the cycle.
func (f *frontier) heads() []string {
	var ids []string
	for _, at := range f.cursors {
		if at.rank == 0 {
			ids = append(ids, at.group.ID)
		}
	}
	return ids
}
