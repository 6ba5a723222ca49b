package inventory

import (
	"cmp"
	"slices"
	"strconv"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// answerBytes limits the approximate size of the answer to a cycle, because the answer is
// one message. Above it, no further candidate is decided and the rest is LATER. In the
// answer, each of these candidates takes fewer bytes than in the cycle.
const answerBytes = 4 << 20

// waiting is the answer to a cycle, which is sent once its leases are durable.
type waiting struct {
	token    uint64
	outcomes []model.Outcome
}

// round is a cycle while it is being decided.
type round struct {
	*Core
	model.Cycle
	// before holds the refusals of the last cycle.
	before map[string]*refused
	// waitsForView reports whether the view does not show a candidate yet. That candidate
	// and everything behind it are decided in a later cycle.
	waitsForView bool
	// again is set if the cycle was decided before.
	again bool
	// end is the index from which on nothing is granted, because a reservation that was not
	// sent comes first; 0 for none.
	end int
	// bytes is the approximate size of the answer.
	bytes int
}

// takeCycle decides the candidates in order. A group stops at its first candidate that
// does not fit or is stale; other groups continue. Candidates that the cycle does not
// reach are LATER: the registry sends them in a later cycle, in the order that applies
// then.
//
// No candidate overtakes a reservation that was not sent yet. If the last candidate of a
// group is granted, the cycle ends where the next reservation of the group has its place. If
// some workers of a batch fit that the registry splits, the cycle ends behind the batch.
//
// An outcome that repeats the outcome of the last cycle is left out if the registry has
// the answer of that cycle.
func (c *Core) takeCycle(token uint64, cycle model.Cycle) {
	// Only the next number proves that the registry has an answer to the last cycle. A cycle may be
	// repeated because its answer was lost, its effects were abandoned, or a copy of its message
	// came late. Then it is answered in full, and the registry may have any of its answers.
	answered := cycle.Term == c.cycleTerm && cycle.Number == c.cycle+1
	again := cycle.Term == c.cycleTerm && cycle.Number == c.cycle
	if err := c.admit(cycle); err != nil {
		c.reply(token, nil, err)
		return
	}
	clear(c.stopped)
	r := round{Core: c, Cycle: cycle, before: c.refused, again: again}
	c.refused = make(map[string]*refused, len(r.before))
	c.index.Work = 0
	outcomes := make([]model.Outcome, 0, len(cycle.Candidates))
	for i, candidate := range cycle.Candidates {
		outcome, repeated := r.decideCandidate(candidate, i)
		if repeated && answered {
			c.counts.attempt(outcome)
			continue
		}
		r.bytes += 48 + len(outcome.UID) + len(outcome.Reason) + len(outcome.Message)
		outcomes = append(outcomes, outcome)
	}
	c.subject = model.Ref{}
	c.waiting = append(c.waiting, waiting{token, outcomes})
	c.answerCycles()
}

// decideCandidate decides a candidate, and reports whether the outcome repeats the
// outcome of the last cycle. The first candidate is decided whatever it costs.
func (r *round) decideCandidate(e model.Candidate, at int) (o model.Outcome, repeated bool) {
	sent, known := e, r.before[e.UID]
	named := e.Unchanged && known != nil && known.candidate.Mod == e.Mod
	sure := known != nil && !known.unsure
	switch {
	case named:
		e = known.candidate
	case e.Unchanged && !r.waitsForView:
		// Another leader of executor-state refused the candidate.
		r.waitsForView = !r.complete(&e) && e.Mod > r.revision && !r.quarantined.uids[e.UID]
	}
	exhausted := at > 0 && (r.index.Work >= r.index.Limits.Work || r.bytes >= r.answerLimit)
	switch {
	case r.waitsForView:
		o = model.Outcome{UID: e.UID, Result: model.Later}
		r.remember(known)
	case r.stopped[e.Group]:
		o = model.Outcome{UID: e.UID, Result: model.Behind, Reason: fault.ReasonBehindHead}
		r.remember(known)
	case exhausted || r.end > 0 && at >= r.end:
		o = model.Outcome{UID: e.UID, Result: model.Later}
		r.remember(known)
	default:
		o = r.try(e, known)
		if kept := r.refused[e.UID]; kept != nil {
			kept.unsure = r.again && !(sure && o == known.outcome())
		}
	}
	switch {
	case o.Result == model.Granted && sent.NextAt > 0:
		r.end = min(cmp.Or(r.end, int(sent.NextAt)), int(sent.NextAt))
	case o.Result == model.NoFit && sent.Splits && o.Fitting > 0 && o.Fitting < e.Workers.Len():
		r.end = at + 1
	}
	r.stopped[e.Group] = o.Result != model.Granted &&
		o.Reason != fault.ReasonInvalid && o.Reason != fault.ReasonPoison
	return o, named && sure && o == known.outcome()
}

// complete fills in a candidate that was sent by name from the record of its reservation.
// It reports whether the view shows the record at the revision of the candidate.
func (c *Core) complete(e *model.Candidate) bool {
	entry := c.reservations[e.UID]
	if entry == nil || entry.mod != e.Mod {
		return false
	}
	r := entry.record.(*model.Reservation)
	*e = model.Candidate{
		Key: r.Key, UID: r.UID, Epoch: entry.create, Mod: entry.mod, Group: e.Group,
		Constraints: r.ConstraintsAt(c.now), Workers: r.Workers, Trace: r.Trace,
		Volume: r.Spec.Volume, Hold: r.Holds(), Chosen: r.Chosen,
	}
	return true
}

// shortStep limits the steps between cycle numbers above model.HighestJump. Numbers up to
// model.HighestJump are accepted in a step of any size. A higher number is accepted only
// within shortStep of model.HighestJump or of the highest number seen. So no call can use
// up the numbers: after a call that tried, the registry continues above the number that
// the error names. A new leader has seen no number. If the registry's number is far above
// model.HighestJump then, the number in the error is lower than the registry's.
const shortStep = 1 << 20

// admit checks the term and the number of a cycle. Only the term in the registry's leader
// key is valid. If the view has not reached the term, admit knows it from
// [model.LeaderTerm] or returns Unavailable.
func (c *Core) admit(p model.Cycle) error {
	switch leads := c.leaders[model.ServiceRegistry]; {
	case p.Term == leads && p.Term > 0:
	case p.Term > c.revision:
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "term %d is newer than the view", p.Term)
	default:
		return fault.New(fault.Precondition, fault.ReasonLowerTerm, "the registry of term %d does not lead", p.Term)
	}
	newest := int64(0)
	if p.Term == c.cycleTerm {
		newest = c.cycle
	}
	switch {
	case p.Number < 0:
		return fault.BadField(fault.ReasonInvalid, "cycle", "must not be negative, got %d", p.Number)
	case p.Number < newest:
		return fault.New(fault.Precondition, fault.ReasonLowerCycle, "cycle %d of term %d is lower than %d", p.Number,
			p.Term, newest).
			With(fault.MetaNewestCycle, strconv.FormatInt(newest, 10))
	case p.Number > max(model.HighestJump, newest)+shortStep:
		return fault.BadField(fault.ReasonInvalid, "cycle", "must be at most %d, got %d",
			max(model.HighestJump, newest)+shortStep, p.Number).
			With(fault.MetaNewestCycle, strconv.FormatInt(newest, 10))
	}
	c.cycleTerm, c.cycle = p.Term, p.Number
	return nil
}

// refused is a candidate that did not fit in the last cycle. gangChange is the result of
// [Core.gangChange] at that time. unsure is set if the answers to one cycle differ about it: the
// registry may have another one.
type refused struct {
	candidate  model.Candidate
	gangChange uint64
	unsure     bool
	*match.Refusal
}

// of reports whether e is the candidate that was refused: it has the same record and
// avoids the same executors. Everything else in a candidate follows from the record.
func (r *refused) of(e model.Candidate) bool {
	return r.candidate.Mod == e.Mod && slices.Equal(r.candidate.Constraints.AvoidFailed, e.Constraints.AvoidFailed)
}

func (r *refused) outcome() model.Outcome {
	return model.Outcome{UID: r.candidate.UID, Result: model.NoFit, Reason: r.Reason, Message: r.Message,
		Fitting: r.Fitting}
}

// remember stores a refusal for the next cycle; nil is ignored.
func (c *Core) remember(r *refused) {
	if r != nil {
		c.refused[r.candidate.UID] = r
	}
}

// try leases executors if all workers of a candidate fit. before is the candidate's
// refusal in the last cycle; nil if there is none.
func (r *round) try(e model.Candidate, before *refused) model.Outcome {
	refuse := func(result model.Result, reason fault.Reason, message string) model.Outcome {
		return model.Outcome{UID: e.UID, Result: result, Reason: reason, Message: message}
	}
	r.subject = model.Ref{Kind: model.KindReservation, Key: e.Key, ID: e.UID}
	needed := e.Workers.Len()
	if r.leases[e.UID] != nil {
		return model.Outcome{UID: e.UID, Result: model.Granted, Fitting: needed}
	}
	if r.quarantined.uids[e.UID] {
		return refuse(model.NoFit, fault.ReasonPoison, "a record of the reservation is quarantined: see the findings")
	}
	if before != nil && !before.of(e) {
		before = nil
	}
	if before == nil && !e.Unchanged {
		if message := malformed(e); message != "" {
			return refuse(model.NoFit, fault.ReasonInvalid, message)
		}
	}
	if message := r.stale(e); message != "" {
		return refuse(model.Stale, fault.ReasonStale, message)
	}
	if e.Constraints.Cells {
		return r.tryCells(e)
	}
	gangChange := r.gangChange(e)
	if before != nil && before.gangChange == gangChange && r.index.StillRefused(before.Refusal) {
		r.remember(before)
		return before.outcome()
	}
	if e.Volume != nil {
		return r.tryVolumes(e)
	}
	picks, refusal := r.index.Choose(e.Constraints, needed, r.pinned(e.Key, e.UID, e.Constraints, e.Workers))
	if refusal != nil {
		refusal.Message = r.ifEmpty(refusal.Reason, refusal.Message, e, needed, nil)
		refused := &refused{candidate: e, gangChange: gangChange, Refusal: refusal}
		r.remember(refused)
		return refused.outcome()
	}
	placements, named := place(e.Workers, picks)
	r.decide(r.grant(e, placements, named, r.rating(e, placements, nil)))
	return model.Outcome{UID: e.UID, Result: model.Granted, Fitting: needed}
}

// malformed describes a field that no registry should have accepted; empty if there is
// none. Such a candidate is never granted and stops no group.
func malformed(e model.Candidate) string {
	if err := e.Workers.Check(model.MaxWorkers); err != nil {
		return "workers: " + err.Error()
	}
	if len(e.Workers) == 0 {
		return "workers: must not be empty"
	}
	for _, name := range e.Constraints.Resources.Names() {
		if n := e.Constraints.Resources[name]; n < 0 {
			return "resources." + name + ": must not be negative, got " + strconv.FormatInt(n, 10)
		}
	}
	return ""
}

// stale describes how the candidate differs from its record; empty if it does not. If the
// view has reached the revision of the candidate, the view must show that revision.
// Before that the candidate is trusted, because the grant compares the revision.
func (c *Core) stale(e model.Candidate) string {
	if c.dispatched(e.UID) {
		return "the reservation was dispatched before, and its lease has ended"
	}
	r := c.reservations[e.UID]
	switch {
	case r == nil && e.Mod <= c.revision:
		return "the reservation was deleted"
	case r == nil || r.mod < e.Mod && e.Mod > c.revision:
		return ""
	case r.mod != e.Mod:
		return "the reservation has changed since"
	}
	known := r.record.(*model.Reservation)
	switch {
	case known.State != model.Queued:
		return "the reservation is " + known.State.String()
	case r.create != e.Epoch || known.Key != e.Key || !known.Workers.Equal(e.Workers) ||
		!known.Spec.Volume.Equal(e.Volume):
		// No other code checks these fields, and agents rely on the epoch.
		return "the epoch, name, workers or volume differ from the record of the reservation"
	}
	return ""
}

// grant returns the one effect of a lease. The effect has the chunks and the event. It
// compares that the reservation has not changed and that the registry still leads.
func (r *round) grant(e model.Candidate, placements []model.Placement, named []model.EventWorker,
	rating *int32) model.Effect {
	event := model.JobEvent{
		Kind: model.EventReservationLeased, Time: r.now,
		Key: e.Key, UID: e.UID, Count: int32(len(placements)), Workers: named,
		Trace: e.Trace, Epoch: e.Epoch,
	}
	if e.Hold {
		event.Kind = model.EventReservationHeld
	}
	reservation := model.Ref{Kind: model.KindReservation, Key: e.Key, ID: e.UID}
	effect := model.Effect{Expect: []model.Expect{
		{Ref: model.LeaderRef(model.ServiceRegistry), Create: r.Term},
		{Ref: reservation, Mod: e.Mod},
	}}
	known := r.reservations[e.UID]
	if known != nil {
		event.Since = known.record.(*model.Reservation).CreatedAt
	}
	if known == nil || known.mod != e.Mod {
		// The view is behind, so stale could not compare the epoch.
		effect.Expect = append(effect.Expect, model.Expect{Ref: reservation, Create: e.Epoch})
	}
	effect.Events = []model.JobEvent{event}
	each, role := e.Constraints.Resources, e.Constraints.Role
	if e.Constraints.Cells {
		each, role = nil, "" // the cell counts what its workers use
	}
	total := len(placements)
	chunks := (total + model.LeaseChunkSize - 1) / model.LeaseChunkSize
	for number := range chunks {
		first := number * model.LeaseChunkSize
		end := min(first+model.LeaseChunkSize, total)
		effect.Puts = append(effect.Puts, &model.LeaseChunk{
			UID: e.UID, Chunk: int32(number), Chunks: int32(chunks), Total: int32(total),
			Key: e.Key, Epoch: e.Epoch, Each: each, Role: role,
			Workers: placements[first:end:end], OnVolumes: e.Volume != nil,
			Cut: r.Cut, GrantedAt: r.now, Trace: e.Trace, Rating: rating,
		})
	}
	return effect
}

// place assigns workers in order to the picked executors. It also names the workers for
// the event if there are at most model.MaxEventWorkers.
func place(workers model.WorkerSet, picks []match.Pick) (placements []model.Placement, named []model.EventWorker) {
	total := workers.Len()
	placements = make([]model.Placement, 0, total)
	at, left := 0, picks[0].Workers
	for worker := range workers.All() {
		if left == 0 {
			at++
			left = picks[at].Workers
		}
		left--
		executor := picks[at].Executor
		placements = append(placements, model.Placement{Worker: worker, Ordinal: executor.Ordinal})
		if total <= model.MaxEventWorkers {
			named = append(named, model.EventWorker{ID: worker, Executor: executor.ID})
		}
	}
	return placements, named
}

// answerCycles answers the cycles whose leases are all durable, in order. Only then is
// the revision of each lease known.
func (c *Core) answerCycles() {
	for len(c.waiting) > 0 {
		cycle := c.waiting[0]
		for i := range cycle.outcomes {
			o := &cycle.outcomes[i]
			if o.Result != model.Granted || o.Lease != 0 {
				continue
			}
			l := c.leases[o.UID]
			if l == nil {
				// The reservation had a lease when the candidate was sent, and the lease has ended
				// since.
				o.Result, o.Reason, o.Message = model.Stale, fault.ReasonStale, "the lease of the reservation has ended"
				continue
			}
			if o.Lease = l.create(); o.Lease == 0 {
				return
			}
		}
		c.waiting = c.waiting[1:]
		for _, o := range cycle.outcomes {
			c.counts.attempt(o)
		}
		c.reply(cycle.token, cycle.outcomes, nil)
	}
	c.waiting = nil
}
