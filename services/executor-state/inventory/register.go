package inventory

import (
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// register registers a new executor, or gives a known executor a new incarnation.
//
// The incarnation is the larger of the previous incarnation + 1 and the leader's term. It
// never exceeds the revision at which it is committed: each registration of an ID takes a
// revision of its own, and a term is a revision. So a later term is above every
// incarnation that was assigned before it. This includes incarnations of a history that a
// restore has undone, provided that the restore bumps revisions as it must.
//
// An executor belongs to the agent with the secret of its registration until it is LOST:
// see duplicate.go. If two agents have that secret, such as two processes of one agent,
// the agent that registers later wins. From then on the earlier agent is rejected, even
// if it registers again, because otherwise the two would take turns. It may register
// again once the later agent has been absent for desertedAfter. The later agent may have
// been an earlier process of the same agent whose last request arrived late.
func (c *Core) register(r Register) (Registered, error) {
	next := &model.Executor{
		ID: r.ID, Address: r.Address, SKU: r.SKU, Host: r.Host,
		Attributes: maps.Clone(r.Attributes),
		Resources:  r.Resources.Clone(),
		Reserved:   maps.Clone(r.Reserved),
		Generation: r.Generation, Cell: r.Cell, NeedsCommand: r.NeedsCommand, AllowLists: r.AllowLists,
		Nonce: r.Nonce, SecretHash: r.SecretHash, Incarnation: c.term,
		RegisteredAt: c.now, Since: c.now,
	}
	if err := model.CheckRegistration(next); err != nil {
		return Registered{}, c.refuseAgent(r, err)
	}
	next.Resources = next.Resources.WithSlots()
	next.Draining, next.DrainGrace = c.requests.Drained(r.ID)
	if r.Cell {
		next.Resources = nil
	}
	var effect model.Effect
	if h := c.hosts[r.ID]; h != nil {
		if h.ownedByOther(r) {
			return Registered{}, c.refuseOther(h, r)
		}
		if h.Record.Nonce == r.Nonce && !h.givenUp() {
			return c.registered(h.Record), nil
		}
		if slices.Contains(h.Record.Former, r.Nonce) && !c.deserted(h) {
			if present(h.live, h.Record.Incarnation) {
				return Registered{}, otherAgent(h)
			}
			return Registered{}, c.refuseAgent(r, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
				"another agent registered as %q since, with incarnation %d: stop one of the two", r.ID, h.Record.Incarnation))
		}
		former := append([]string{h.Record.Nonce}, h.Record.Former...)
		former = slices.DeleteFunc(former, func(nonce string) bool { return nonce == r.Nonce })
		next.Former = former[:min(len(former), model.MaxFormer)]
		next.Removals = h.Record.Removals
		next.Incarnation = max(h.Record.Incarnation+1, c.term)
		next.Ordinal = h.Record.Ordinal
		next.RegisteredAt = h.Record.RegisteredAt
		next.Lost, next.Returning = h.Record.Lost, h.Record.Lost || h.Record.Returning
		next.SupersededWorkers = h.Record.SupersededWorkers && !slices.Contains(h.Record.Former, r.Nonce)
		if h.state == model.ExecutorRegistered {
			// An agent that registers repeatedly without a heartbeat has been absent since its
			// first registration.
			next.Since = h.Record.Since
		}
		next.Unreported = c.requests.Late(&h.Executor, next.Attributes)
		if slices.Equal(next.Unreported, h.Record.Unreported) {
			next.ReportedThrough = h.Record.ReportedThrough
		}
		if h.live != nil && h.live.record != nil {
			effect.Deletes = []model.Ref{h.live.record.Ref()}
		}
	} else {
		if c.unreadable(r.ID) {
			return Registered{}, fault.New(fault.Precondition, fault.ReasonPoison,
				"the record of executor %q cannot be read and is quarantined: see the findings; repair or delete it", r.ID)
		}
		if c.quarantined.forgotten {
			return Registered{}, fault.New(fault.Precondition, fault.ReasonPoison,
				"the record of deleted executors cannot be read and is quarantined: see the findings; no executor with a new ID can register until it is repaired or deleted")
		}
		var err error
		if next.Ordinal, err = c.nextOrdinal(); err != nil {
			return Registered{}, err
		}
		if err := c.admitNew(); err != nil {
			return Registered{}, err
		}
		next.Incarnation = max(c.forgotten.Incarnation+1, c.term)
	}
	effect.Puts = []model.Record{next}
	c.decide(effect)
	delete(c.intruders, r.ID)
	delete(c.refusedAgents, r.ID)
	return c.registered(next), nil
}

// admitNew rejects a new executor if there are too many executors, or too many new ones.
// Each new executor takes its share of a minute, and the shares that are taken may be at
// most one minute ahead of the clock. A new leader starts with no share taken.
func (c *Core) admitNew() error {
	if n := len(c.hosts); n >= c.cfg.MaxExecutors {
		return fault.New(fault.Exhausted, fault.ReasonTooLarge,
			"%d executors are registered, at most %d are allowed (max-executors); LOST executors are deleted after a while", n,
			c.cfg.MaxExecutors)
	}
	paid := c.newPaid
	if paid.Before(c.now) {
		paid = c.now
	}
	paid = paid.Add(time.Minute / time.Duration(c.cfg.MaxNewExecutors))
	if paid.Sub(c.now) > time.Minute {
		return fault.New(fault.Exhausted, fault.ReasonOverloaded,
			"%d new executors within a minute, which is the maximum (max-new-executors); try again later", c.cfg.MaxNewExecutors)
	}
	c.newPaid = paid
	return nil
}

// desertedAfter is how long an executor must be without presence before an earlier agent may
// take it back. It is longer than network or store faults usually delay heartbeats.
const desertedAfter = time.Minute

// deserted reports whether the agent that registered last is LOST and has not returned, or has
// had no presence for desertedAfter.
func (c *Core) deserted(h *host) bool {
	switch {
	case h.Record.Lost && !h.returned():
		return true
	case h.live == nil:
	case h.live.record != nil, c.now.Sub(h.live.since) < desertedAfter:
		return false
	}
	return c.now.Sub(h.since) >= desertedAfter
}

// givenUp reports whether the executor is LOST and has not registered since. Its
// incarnation has ended. Requests to that incarnation and reports about it may still
// arrive, and must not apply to the executor when it returns. So the executor must
// register again.
func (h *host) givenUp() bool { return h.Record.Lost && !h.Record.Returning && !h.returned() }

// returned reports whether the executor is LOST and has presence, which means that it has
// registered since. It stays LOST until no lease names a worker on it.
func (h *host) returned() bool { return h.Record.Lost && present(h.live, h.Record.Incarnation) }

func (c *Core) registered(e *model.Executor) Registered {
	return Registered{Incarnation: e.Incarnation, AssignerTerm: c.leaders[model.ServiceAssigner]}
}

// announce writes the presence of an executor, bound to its etcd lease. An executor that
// was LOST must register first. It gets work again once it has reported that none of its
// earlier workers is left. Until then these workers may run, whatever the records say,
// and the assigner stops them. An executor with orphaned workers gets work once it has
// none, because no lease counts what they use.
//
// While a lease names workers on the executor, it stays LOST: the assigner, which may have no
// leader, has not given up all of them. A leader that found the executor READY would start
// them again, although they may run elsewhere, such as at a superseded agent.
func (c *Core) announce(a Announce) (Announced, error) {
	h := c.hosts[a.ID]
	if h == nil {
		return Announced{}, fault.New(fault.NotFound, fault.ReasonNotFound, "executor %q is not registered", a.ID)
	}
	if h.Record.Incarnation != a.Incarnation {
		if h.supersedes(a.Nonce) {
			c.reportSuperseded(h, a.Workers)
			return Announced{Superseded: true}, nil
		}
		return Announced{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %q registered again: its incarnation is %d, not %d", a.ID, h.Record.Incarnation, a.Incarnation)
	}
	if a.Nonce != "" && !h.Record.Proves(a.Nonce) {
		return Announced{}, fault.New(fault.Precondition, fault.ReasonOtherAgent,
			"executor %q: the nonce differs from the nonce of the registration", a.ID)
	}
	if h.givenUp() {
		return Announced{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %q is LOST: incarnation %d is over, register again", a.ID, a.Incarnation)
	}
	var effect model.Effect
	if !present(h.live, h.Record.Incarnation) || h.live.record.(*model.Live).EtcdLease != a.EtcdLease {
		effect.Puts = []model.Record{&model.Live{ID: a.ID, Incarnation: a.Incarnation, EtcdLease: a.EtcdLease}}
	}
	back := *h.Record
	if back.Lost && h.allocation.Workers == 0 {
		back.Lost, back.Since = false, c.now
	}
	back.Returning = back.Returning && a.Workers > 0
	back.Orphans = a.Orphans
	if back.Lost != h.Record.Lost || back.Returning != h.Record.Returning || back.Orphans != h.Record.Orphans {
		effect.Puts = append(effect.Puts, &back)
	}
	if len(effect.Puts) > 0 {
		c.decide(effect)
	}
	return Announced{}, nil
}

// admitReturned ends LOST for the executors that have returned, once no lease names a worker on
// them.
func (c *Core) admitReturned() {
	for _, id := range slices.Sorted(maps.Keys(c.returned)) {
		h := c.returned[id]
		if h.allocation.Workers > 0 || c.quarantined.executors[id] {
			continue
		}
		c.subject = h.Record.Ref()
		back := *h.Record
		back.Lost, back.Since = false, c.now
		c.decide(model.Effect{Puts: []model.Record{&back}})
	}
	c.subject = model.Ref{}
}

// depart ends the presence of an agent whose process is dead. Its workers continue to run
// under their keepers and keep their capacity. The executor is UNREACHABLE before its
// etcd lease expires. A wrong Depart costs little: if the agent's stream lives, it finds
// the presence missing and announces the executor again.
func (c *Core) depart(d Depart) {
	h := c.hosts[d.ID]
	if h == nil || h.live == nil || h.live.record == nil {
		return
	}
	live := h.live.record.(*model.Live)
	if live.Incarnation == d.Incarnation && live.EtcdLease == d.EtcdLease {
		c.decide(model.Effect{Deletes: []model.Ref{live.Ref()}})
	}
}
