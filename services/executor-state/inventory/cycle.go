package inventory

import (
	"slices"
	"strconv"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// waiting is a cycle that is answered once its leases are durable.
type waiting struct {
	token    uint64
	outcomes []model.Outcome
}

// answerBytes is what a cycle may have to say in its answer, about; it begins nothing
// more after that, for the answer is one message. That the rest is LATER takes less
// than the rest does in the cycle.
const answerBytes = 4 << 20

// takeCycle tries the entries in order. A group stops at its first entry that
// does not fit or is stale; the others go on. Those that it does not get to are
// to be offered again, in whatever order is due then: nothing behind them is
// decided either.
func (c *Core) takeCycle(token uint64, p model.Cycle) {
	// Only then has the registry heard all that the last cycle said: one that is taken
	// twice, for its answer was lost or its round taken back, is answered whole.
	next := p.Term == c.cycleTerm && p.Number == c.cycle+1
	if err := c.admit(p); err != nil {
		c.reply(token, nil, err)
		return
	}
	outcomes := make([]model.Outcome, 0, len(p.Candidates))
	stopped := map[string]bool{}
	before := c.refused
	c.refused = make(map[string]*refused, len(before))
	c.index.Spent = 0
	said, behind := 0, false
	for i, entry := range p.Candidates {
		known, again := before[entry.UID], entry.Again
		switch {
		case behind:
			c.remember(known)
			outcomes = append(outcomes, model.Outcome{UID: entry.UID, Result: model.Later})
			continue
		case again && known != nil && known.entry.Mod == entry.Mod:
			entry = known.entry
		case again:
			// Another leader has refused it. What the view does not show yet, and all
			// behind it, is decided in a later cycle.
			if behind = !c.fill(&entry) && entry.Mod > c.revision && !c.quarantined.uids[entry.UID]; behind {
				outcomes = append(outcomes, model.Outcome{UID: entry.UID, Result: model.Later})
				continue
			}
			again = false
		}
		outcome := model.Outcome{UID: entry.UID, Result: model.Behind, Reason: fault.ReasonBehindHead}
		switch {
		case stopped[entry.Group]:
			c.remember(known)
		case i > 0 && (c.index.Spent >= c.index.Limits.Work || said >= c.answerLimit):
			outcome = model.Outcome{UID: entry.UID, Result: model.Later}
			c.remember(known)
		default:
			outcome = c.try(p, entry, known)
		}
		stopped[entry.Group] = outcome.Result != model.Granted &&
			outcome.Reason != fault.ReasonInvalid && outcome.Reason != fault.ReasonPoison
		if next && again && outcome == known.outcome() {
			c.counts.attempt(outcome)
			continue
		}
		said += 48 + len(outcome.UID) + len(outcome.Reason) + len(outcome.Message)
		outcomes = append(outcomes, outcome)
	}
	c.subject = model.Ref{}
	c.waiting = append(c.waiting, waiting{token, outcomes})
	c.answerCycles()
}

// fill fills in an entry that is named only from the record of its reservation, and
// reports whether the view shows the record at that revision.
func (c *Core) fill(e *model.Candidate) bool {
	held := c.reservations[e.UID]
	if held == nil || held.mod != e.Mod {
		return false
	}
	r := held.record.(*model.Reservation)
	*e = model.Candidate{
		Key: r.Key, UID: r.UID, Epoch: held.create, Mod: held.mod, Group: e.Group,
		Constraints: r.ConstraintsAt(c.now), Workers: r.Workers, Trace: r.Trace,
	}
	return true
}

// Cycle numbers up to model.HighestJump are accepted in any step, those above only within
// shortStep of that or of the highest seen. So no call can use the numbers up, and
// after one that tried to, the registry continues above the number that its refusal
// names. A new leader has seen none: if the registry is far above model.HighestJump by
// then, that number is lower than its own.
const shortStep = 1 << 20

// admit compares the cycle's term and number, once, at the door. Only the term in the
// registry's leader key counts: one that the view has not reached is known by
// model.Leads, or else may be true.
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
		return fault.New(fault.Precondition, fault.ReasonLowerCycle, "cycle %d of term %d is lower than %d", p.Number, p.Term, newest).
			With(fault.MetaNewestCycle, strconv.FormatInt(newest, 10))
	case p.Number > max(model.HighestJump, newest)+shortStep:
		return fault.BadField(fault.ReasonInvalid, "cycle", "must be at most %d, got %d", max(model.HighestJump, newest)+shortStep, p.Number).
			With(fault.MetaNewestCycle, strconv.FormatInt(newest, 10))
	}
	c.cycleTerm, c.cycle = p.Term, p.Number
	return nil
}

// refused is a candidate that did not fit. It is this leader's alone.
type refused struct {
	entry model.Candidate
	*match.Refusal
}

// of reports whether e is the candidate that was refused: the same record, which avoids
// the same executors. Everything else of a candidate follows from the record.
func (r *refused) of(e model.Candidate) bool {
	return r.entry.Mod == e.Mod && slices.Equal(r.entry.Constraints.AvoidFailed, e.Constraints.AvoidFailed)
}

func (r *refused) outcome() model.Outcome {
	return model.Outcome{UID: r.entry.UID, Result: model.NoFit, Reason: r.Reason, Message: r.Message, Fitting: r.Fitting}
}

// remember keeps a refusal for the next cycle.
func (c *Core) remember(r *refused) {
	if r != nil {
		c.refused[r.entry.UID] = r
	}
}

// try decides one entry, and leases its executors if all its workers fit. Before is its
// refusal in the last cycle, if there was one.
func (c *Core) try(p model.Cycle, e model.Candidate, before *refused) model.Outcome {
	c.subject = model.Ref{Kind: model.KindReservation, Key: e.Key, ID: e.UID}
	if c.leases[e.UID] != nil {
		return model.Outcome{UID: e.UID, Result: model.Granted, Fitting: e.Workers.Len()}
	}
	if c.quarantined.uids[e.UID] {
		return model.Outcome{UID: e.UID, Result: model.NoFit, Reason: fault.ReasonPoison, Message: "a record of it is left alone: see the findings"}
	}
	if before != nil && !before.of(e) {
		before = nil
	}
	if before == nil && !e.Again {
		if message := malformed(e); message != "" {
			return model.Outcome{UID: e.UID, Result: model.NoFit, Reason: fault.ReasonInvalid, Message: message}
		}
	}
	if message := c.stale(e); message != "" {
		return model.Outcome{UID: e.UID, Result: model.Stale, Reason: fault.ReasonStale, Message: message}
	}
	needed := e.Workers.Len()
	if before != nil && c.index.Stands(before.Refusal) {
		c.remember(before)
		return before.outcome()
	}
	picks, refusal := c.index.Fits(e.Constraints, needed)
	if refusal != nil {
		refused := &refused{e, refusal}
		c.remember(refused)
		return refused.outcome()
	}
	c.decide(c.grant(p, e, picks))
	return model.Outcome{UID: e.UID, Result: model.Granted, Fitting: needed}
}

// malformed says what no registry should have let through, or nothing. Such an
// entry is never granted, and stops nobody.
func malformed(e model.Candidate) string {
	if err := e.Workers.Check(model.MaxWorkers); err != nil {
		return "its workers: " + err.Error()
	}
	if len(e.Workers) == 0 {
		return "it asks for no worker"
	}
	for _, name := range e.Constraints.Resources.Names() {
		if e.Constraints.Resources[name] < 0 {
			return "it asks for less than nothing of " + name
		}
	}
	return ""
}

// stale says why the entry is not as it was decided on, or nothing. Once the
// view has reached the entry's revision it must show that very revision. While
// it is behind, the entry is trusted, for the grant compares it.
func (c *Core) stale(e model.Candidate) string {
	if c.dispatched(e.UID) {
		return "it was handed over before, and its lease is gone"
	}
	r := c.reservations[e.UID]
	switch {
	case r == nil && e.Mod <= c.revision:
		return "it is gone"
	case r == nil || r.mod < e.Mod && e.Mod > c.revision:
		return ""
	case r.mod != e.Mod:
		return "it changed since"
	}
	known := r.record.(*model.Reservation)
	switch {
	case known.State != model.Queued:
		return "it is " + known.State.String()
	case r.create != e.Epoch || known.Key != e.Key || !known.Workers.Equal(e.Workers):
		// Nobody else checks these, and the epoch is what agents go by.
		return "its epoch, name or workers are not those of its record"
	}
	return ""
}

// grant is the one effect of a lease: its chunks, the event, and the compares
// that the reservation is as decided on and that the registry still leads.
func (c *Core) grant(p model.Cycle, e model.Candidate, picks []match.Pick) model.Effect {
	placements := make([]model.Placement, 0, e.Workers.Len())
	event := model.JobEvent{
		Kind: model.EventReservationLeased, Time: c.now,
		Key: e.Key, UID: e.UID, Count: int32(e.Workers.Len()),
		Trace: e.Trace, Epoch: e.Epoch,
	}
	if r := c.reservations[e.UID]; r != nil {
		event.Since = r.record.(*model.Reservation).CreatedAt
	}
	named := e.Workers.Len() <= model.MaxEventWorkers
	at, left := 0, picks[0].Workers
	for worker := range e.Workers.All() {
		if left == 0 {
			at++
			left = picks[at].Workers
		}
		left--
		executor := picks[at].Executor
		placements = append(placements, model.Placement{Worker: worker, Ordinal: executor.Ordinal})
		if named {
			event.Workers = append(event.Workers, model.EventWorker{ID: worker, Executor: executor.ID})
		}
	}
	reservation := model.Ref{Kind: model.KindReservation, Key: e.Key, ID: e.UID}
	effect := model.Effect{
		Expect: []model.Expect{
			{Ref: model.LeaderRef(model.ServiceRegistry), Create: p.Term},
			{Ref: reservation, Mod: e.Mod},
		},
		Events: []model.JobEvent{event},
	}
	if r := c.reservations[e.UID]; r == nil || r.mod != e.Mod {
		// The view is behind, and stale had nothing to compare the epoch with.
		effect.Expect = append(effect.Expect, model.Expect{Ref: reservation, Create: e.Epoch})
	}
	total := len(placements)
	chunks := (total + model.LeaseChunkSize - 1) / model.LeaseChunkSize
	for number := range chunks {
		first := number * model.LeaseChunkSize
		end := min(first+model.LeaseChunkSize, total)
		effect.Puts = append(effect.Puts, &model.LeaseChunk{
			UID: e.UID, Chunk: int32(number), Chunks: int32(chunks), Total: int32(total),
			Key: e.Key, Epoch: e.Epoch, Each: e.Constraints.Resources, Role: e.Constraints.Role,
			Workers: placements[first:end:end],
			Cut:     p.Cut, GrantedAt: c.now, Trace: e.Trace,
		})
	}
	return effect
}

// answerCycles answers the cycles, in order, whose leases are all durable: only
// then is the lease's revision known.
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
				// It was leased when it was offered again, and has been released
				// since: there is no lease to wait for.
				o.Result, o.Reason, o.Message = model.Stale, fault.ReasonStale, "its lease is gone"
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
