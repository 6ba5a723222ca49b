package scheduler

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// CycleDone is the event that the outcome of a cycle is known. A candidate that was sent
// by name and has no outcome still does not fit. Any other candidate without an outcome
// becomes a candidate of the next cycle.
type CycleDone struct {
	Cycle    int64
	Outcomes []model.Outcome
	// Newest is set if executor-state refused the cycle because of its number.
	// Executor-state then tried nothing. Without TooHigh, executor-state has seen the higher
	// number Newest. With TooHigh, the cycle's number is out of executor-state's reach, and
	// Newest is the lower number that executor-state has seen, or 0 for none.
	Newest  int64
	TooHigh bool
}

// highestCycle is an exclusive bound of the numbers above which the registry continues.
const highestCycle = model.HighestJump + 1<<61

// CycleDone applies the outcome of the cycle in flight, and ignores the outcome of any
// other cycle. It calls decided, in order, for each pending candidate that was granted
// and for each new outcome that found no capacity. decided may add and remove
// reservations.
func (s *Scheduler) CycleDone(now time.Time, done CycleDone, decided func(uid string, o *model.Outcome)) {
	f := s.flight
	if f == nil || f.cycle.Number != done.Cycle {
		return
	}
	s.flight = nil
	for _, e := range f.entries {
		e.InCycle = false
	}
	if s.renumber(done) {
		s.retry(f)
		return
	}
	outcomes, progress := f.outcomes(done), false
	before := s.endedEarly
	s.endedEarly = f.findEnd(outcomes)
	for i, o := range outcomes {
		if o != nil && s.apply(f, i, o, now, decided) {
			progress = true
		}
	}
	s.Subject = model.Ref{}
	if progress { // otherwise the next cycle would end where this cycle ended
		s.continueUnsent(f)
	}
	s.setDepths(f, outcomes, before && s.endedEarly)
	if len(s.due) == 0 {
		clear(s.causes[:])
	}
}

// renumber changes the number of the next cycle if executor-state refused this cycle
// because of its number, and reports whether it did. If a higher number was used in this
// term, the next cycle continues above that number.
//
// If the number is out of reach of a new leader of executor-state, the next cycle follows
// the larger of two numbers. One is the highest number that the new leader has seen. The
// other is the highest number up to model.HighestJump that this registry used, which is
// in reach of a step of any size. The new leader also refuses every cycle that was sent
// with a number above both.
func (s *Scheduler) renumber(done CycleDone) bool {
	switch {
	case done.Newest > s.cycles && done.Newest < highestCycle:
		s.cycles = done.Newest
	case done.TooHigh && s.cycles > model.HighestJump && done.Newest < s.cycles:
		s.cycles = max(done.Newest, s.reachable)
	default:
		return false
	}
	return true
}

// retry makes the groups due whose candidates were in a cycle.
func (s *Scheduler) retry(f *flight) {
	for _, sent := range f.cycle.Candidates {
		if g := s.groups[sent.Group]; g != nil {
			s.due[g.ID] = g
		}
	}
	s.continueUnsent(f)
}

// continueUnsent makes the groups due whose heads did not fit into the message of a
// cycle.
func (s *Scheduler) continueUnsent(f *flight) {
	for _, id := range f.unsent {
		if g := s.groups[id]; g != nil {
			s.makeDue(g)
		}
	}
}

// outcomes returns the outcome of each candidate; nil for a candidate without a decision.
// If the cycle contained only the UID and the revision of a candidate, and the answer
// omits it, its previous outcome still applies.
func (f *flight) outcomes(done CycleDone) []*model.Outcome {
	answered := make(map[string]*model.Outcome, len(done.Outcomes))
	for i := range done.Outcomes {
		answered[done.Outcomes[i].UID] = &done.Outcomes[i]
	}
	outcomes := make([]*model.Outcome, len(f.entries))
	for i, sent := range f.cycle.Candidates {
		outcomes[i] = answered[sent.UID]
		if outcomes[i] == nil && sent.Unchanged {
			outcomes[i] = f.entries[i].Outcome
		}
	}
	return outcomes
}

// apply applies one outcome, and reports whether the next cycle can get further because
// of it. A head that does not fit waits for the next wake-up, unless a wake-up came while
// the cycle was in flight. A candidate that the cycle did not reach is in the next cycle.
func (s *Scheduler) apply(f *flight, i int, o *model.Outcome, now time.Time,
	decided func(string, *model.Outcome)) (progress bool) {
	if int(o.Result) < len(s.Counts.Candidates) {
		s.Counts.Candidates[o.Result]++
	}
	progress = o.Result == model.Granted
	e := f.entries[i]
	if e.Group == nil { // no longer pending
		return progress
	}
	s.Subject = e.reservation.Ref()
	switch o.Result {
	case model.Granted:
		decided(o.UID, o)
	case model.NoFit:
		progress = s.noFit(f, i, o, now, decided)
	case model.Later:
		// Consecutive cycles do not start in vain. Executor-state ends a cycle after a bounded
		// amount of work, and never before the first candidate. A candidate that it refused
		// costs nothing again until relevant executors change. So each cycle continues where
		// the last cycle ended. Without changes, there are only as many cycles as it takes to
		// try all candidates once. A cycle that a grant ended early (Candidate.NextAt) has made
		// that grant.
		if i >= f.end && f.cycle.Candidates[i].Unchanged { // executor-state keeps the earlier refusal
			e.refusedIn = f.cycle.Number
		}
		s.makeDue(e.Group)
	}
	return progress
}

// noFit records that a cycle found no capacity for a candidate. It reports whether the
// candidate is smaller in the next cycle, which then sends only its name.
func (s *Scheduler) noFit(f *flight, i int, o *model.Outcome, now time.Time,
	decided func(string, *model.Outcome)) (smaller bool) {
	e, sent := f.entries[i], &f.cycle.Candidates[i]
	if !hopeless(o) && len(sent.Constraints.AvoidFailed) == 0 { // AvoidFailed changes as time passes
		e.refusedIn, e.refusedMod = f.cycle.Number, sent.Mod
		smaller = !sent.Unchanged
	}
	e.TriedAt = now
	if e.Outcome != o {
		kept := *o // a pointer would keep the whole answer in memory
		e.Outcome, e.TriedWorkers = &kept, e.reservation.Workers.Len()
		decided(o.UID, o)
	}
	if f.wakes == s.wakes && e.Group.order.At(0) == e {
		delete(s.due, e.Group.ID)
	}
	return smaller
}

// hopeless reports whether a candidate can never have capacity. Such a candidate blocks
// no other.
func hopeless(o *model.Outcome) bool {
	return o.Result == model.NoFit && (o.Reason == fault.ReasonInvalid || o.Reason == fault.ReasonPoison)
}

// reach is how far a cycle got in one group. It passed a number of candidates that have
// capacity or never can have it. The next candidate, if there is one, had the result end.
type reach struct {
	passed  int
	granted bool
	end     model.Result
}

// setDepths sets how many candidates each group has in the next cycle: the candidates
// with capacity and one more, or twice as many if all had capacity. A candidate that can
// never have capacity counts like one with capacity. If all had capacity and one was
// granted, the group continues at once.
//
// A grant that ends a cycle early makes all groups after it wait for the next cycle. If the
// depth of a group is the reason in two cycles in a row, there is capacity for more than a few
// reservations. Then the groups that the cycle did not reach have twice as many candidates,
// too. So the number of cycles grows with the logarithm of the depth, and not with the number
// of groups. If the bounds of the cycle are the reason, more candidates would not help.
func (s *Scheduler) setDepths(f *flight, outcomes []*model.Outcome, deepen bool) {
	reaches := map[string]reach{}
	for i, o := range outcomes {
		if id := f.cycle.Candidates[i].Group; o != nil {
			reaches[id] = reaches[id].past(o)
		}
	}
	for id, r := range reaches {
		g := s.groups[id]
		switch {
		case g == nil || r.end == model.Later && !deepen:
			continue
		case r.end != model.ResultUnset && r.end != model.Later:
			g.depth = r.passed + 1
			continue
		}
		if g.depth *= 2; g.depth > s.config.CycleCandidates {
			g.depth = 0
		}
		if r.granted {
			s.makeDue(g)
		}
	}
}

// findEnd sets the end of the cycle. It reports whether the depth of a group ended the cycle
// early, because its last candidate was granted.
func (f *flight) findEnd(outcomes []*model.Outcome) (early bool) {
	f.end = len(outcomes)
	for i, o := range outcomes {
		sent := &f.cycle.Candidates[i]
		next := int(sent.NextAt)
		switch {
		case o == nil:
		case o.Result == model.Granted && 0 < next && next < f.end:
			f.end, early = next, f.bounded == 0 || next < f.bounded
		case o.Result == model.NoFit && sent.Splits && o.Fitting > 0 && i+1 < f.end:
			f.end, early = i+1, false
		}
	}
	return early
}

// past returns the reach after the outcome of the next candidate.
func (r reach) past(o *model.Outcome) reach {
	switch {
	case r.end != model.ResultUnset:
	case o.Result == model.Granted, hopeless(o):
		r.passed++
		r.granted = r.granted || o.Result == model.Granted
	default:
		r.end = o.Result
	}
	return r
}
