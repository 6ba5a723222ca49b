package inventory

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
	"berth.dev/services/executor-state/policy"
	"berth.dev/services/executor-state/usage"
)

// host is an executor with everything that follows from the records about it.
type host struct {
	policy.Executor
	// since is when this core learned of the record.
	since time.Time
	// live is its presence, ended or not; nil if there was none.
	live *entry
	hold *hold
	// refusal is the assigner's record that the agent rejects its requests; nil without.
	refusal *entry

	state model.ExecutorState
	// use and disabled are what usage counts it as.
	use      usage.Use
	disabled bool
	term     hostTerm
}

// hostTerm is what only this leader knows about an executor.
type hostTerm struct {
	// supersededAt is when a superseded agent last reported living workers of its own.
	supersededAt time.Time
	// releasedAt is when it was last released from a mass loss: its clock restarts then.
	releasedAt time.Time
}

// hold is what leases use of the executor with an ordinal. It is kept by ordinal because
// the view may show a lease before its executors.
type hold struct {
	match.Leased
	host *host
	// placements counts the workers of each lease here, in order of UID.
	placements []placement
	// tasked counts the workers that tasks name, running those of them that run.
	tasked, running int
	// freed is when this core last saw its last worker end.
	freed time.Time
	// isolated: what leases use of it is not fully known.
	isolated bool
}

// placement is the workers of one lease on one executor.
type placement struct {
	uid     string
	workers int
}

// place adds n to the workers that a lease has here; n may be negative.
func (h *hold) place(uid string, n int) {
	at, found := slices.BinarySearchFunc(h.placements, uid,
		func(p placement, uid string) int { return cmp.Compare(p.uid, uid) })
	if !found {
		h.placements = slices.Insert(h.placements, at, placement{uid: uid})
	}
	if h.placements[at].workers += n; h.placements[at].workers == 0 {
		h.placements = slices.Delete(h.placements, at, at+1)
	}
}

// mentioned reports whether a lease or a task names the ordinal, or may name it.
func (h *hold) mentioned() bool { return h.Workers != 0 || h.tasked != 0 || h.isolated }

func compareIDs(a, b *host) int { return cmp.Compare(a.ID, b.ID) }

func compareAbsence(a, b *host) int {
	return cmp.Or(a.AbsentSince.Compare(b.AbsentSince), cmp.Compare(a.ID, b.ID))
}

// present reports whether there is a presence of the incarnation.
func present(live *entry, incarnation int64) bool {
	if live == nil || live.record == nil {
		return false
	}
	return live.record.(*model.Live).Incarnation == incarnation
}

// stateNow derives the state. An incarnation whose presence this core never saw is
// REGISTERED, also if its presence ended before this replica started. It becomes LOST if
// it stays absent.
func (h *host) stateNow() model.ExecutorState {
	switch {
	case h.Record.Lost:
		return model.ExecutorLost
	case present(h.live, h.Record.Incarnation):
		return model.ExecutorReady
	case h.live != nil && h.live.record == nil && h.live.incarnation == h.Record.Incarnation:
		return model.ExecutorUnreachable
	}
	return model.ExecutorRegistered
}

// shown returns the state as reported. An executor is REGISTERED instead of READY while it
// has returned with workers from before it was LOST, has orphaned workers or workers of a
// superseded agent, or rejects the assigner.
func (h *host) shown() model.ExecutorState {
	if h.state == model.ExecutorReady && (h.Record.Returning || h.Record.Orphans || h.Record.SupersededWorkers ||
		h.refuses()) {
		return model.ExecutorRegistered
	}
	return h.state
}

// refuses reports whether the agent of this incarnation rejects the assigner's requests.
func (h *host) refuses() bool {
	return h.refusal != nil && h.refusal.record.(*model.Refusal).Incarnation == h.Record.Incarnation
}

// stateSince returns since when it has been in its state, as far as this core knows.
func (h *host) stateSince() time.Time {
	switch h.state {
	case model.ExecutorReady, model.ExecutorUnreachable:
		return h.live.since
	}
	return h.Record.Since
}

// standingNow derives the standing as far as records about the executor decide it; the
// index adds what its class and its leases decide. No other code decides it: an executor is
// in the index of those that may get work, and reported as free, exactly if it is Open.
func (h *host) eligibility() match.Eligibility {
	switch {
	case h.shown() == model.ExecutorRegistered:
		return match.Registered
	case h.state == model.ExecutorUnreachable:
		return match.Unreachable
	case h.state == model.ExecutorLost:
		return match.Lost
	case h.hold.isolated:
		return match.Quarantined
	case h.Record.Draining:
		return match.Draining
	case len(h.Named) > 0:
		return match.Disabled
	}
	return match.Eligible
}

func (h *host) useNow() usage.Use {
	switch {
	case h.state == model.ExecutorLost:
		return usage.Lost
	case h.state != model.ExecutorReady:
		return usage.Unavailable
	case h.hold.Workers > 0 && h.hold.running > 0:
		return usage.Running
	case h.hold.Workers > 0:
		return usage.Leased
	case h.Eligibility() != match.Eligible:
		return usage.Unavailable
	}
	return usage.Idle
}

// countUse counts what the executor is used for; forgetUse undoes that.
func (c *Core) countUse(h *host) {
	h.use, h.disabled = h.useNow(), h.Withheld() || h.Record.Draining
	c.usage.Count(h.Shape().SKU(), h.use, h.disabled, 1)
}

func (c *Core) forgetUse(h *host) { c.usage.Count(h.Shape().SKU(), h.use, h.disabled, -1) }

func (c *Core) setExecutor(id string, next *entry) {
	h := c.hosts[id]
	if h != nil {
		c.unplace(h)
		c.byID.Remove(h)
		c.requests.Leave(&h.Executor)
		h.hold.host = nil
		c.dropHold(h.Record.Ordinal)
	}
	if next == nil {
		c.index.Set(&h.Executor.Executor, nil)
		delete(c.hosts, id)
		return
	}
	if h == nil {
		h = &host{live: c.records[model.Ref{Kind: model.KindLive, ID: id}], refusal: c.records[model.RefusalRef(id)]}
		h.ID = id
		c.hosts[id] = h
	}
	e := next.record.(*model.Executor)
	h.Record, h.since = e, next.since
	h.hold = c.holdOf(e.Ordinal)
	h.hold.host = h
	h.Ordinal, h.Leased = e.Ordinal, &h.hold.Leased
	c.index.Set(&h.Executor.Executor, &match.Kind{
		SKU: e.SKU, Attributes: e.Attributes, Resources: e.Resources, Reserved: e.Reserved, Generation: e.Generation,
	})
	c.byID.Insert(h)
	c.requests.Enter(&h.Executor)
	c.place(h)
}

func (c *Core) setPresence(id string, next *entry) {
	h := c.hosts[id]
	if h == nil {
		return
	}
	c.unplace(h)
	h.live = next
	c.place(h)
}

func (c *Core) setRefusal(id string, next *entry) {
	h := c.hosts[id]
	if h == nil {
		return
	}
	c.unplace(h)
	h.refusal = next
	c.place(h)
}

// take adds n workers of a chunk to what an ordinal holds; n may be negative.
func (c *Core) take(ordinal uint32, n int, chunk *model.LeaseChunk) {
	hold := c.holdOf(ordinal)
	if hold.host != nil {
		c.unplace(hold.host)
		defer c.place(hold.host)
	}
	hold.Add(n, chunk.Each, chunk.Role)
	hold.place(chunk.UID, n)
	if hold.Workers == 0 {
		hold.freed = c.now
	}
	c.dropHold(ordinal)
}

// task adds to the workers that tasks name on an ordinal, and to those of them that run;
// either may be negative.
func (c *Core) task(ordinal uint32, tasked, running int) {
	hold := c.holdOf(ordinal)
	h := hold.host
	if h != nil {
		c.forgetUse(h)
		c.expired.Delete(h)
	}
	hold.tasked += tasked
	hold.running += running
	if h != nil {
		c.countUse(h)
		c.listExpired(h)
	}
	c.dropHold(ordinal)
}

func (c *Core) holdOf(ordinal uint32) *hold {
	h := c.holds[ordinal]
	if h == nil {
		h = &hold{}
		c.holds[ordinal] = h
		c.ordinals.Insert(ordinal)
		c.lastOrdinal = max(c.lastOrdinal, ordinal)
	}
	return h
}

// dropHold removes an ordinal that no executor, lease or task names.
func (c *Core) dropHold(ordinal uint32) {
	if h := c.holds[ordinal]; h.host != nil || h.mentioned() {
		return
	}
	delete(c.holds, ordinal)
	c.ordinals.Remove(ordinal)
	c.lastOrdinal, _ = c.ordinals.First()
}

// unplace removes the host from every index that depends on its state and its free
// resources; place adds it again. These may change only between the two calls.
func (c *Core) unplace(h *host) {
	c.states[h.shown()]--
	c.forgetUse(h)
	c.index.Unplace(&h.Executor.Executor)
	if !h.AbsentSince.IsZero() {
		c.absent.Remove(h)
		h.AbsentSince = time.Time{}
		c.absentChanged = true
	}
	c.expired.Delete(h)
	delete(c.overcommitted, h.ID)
	delete(c.stranded, h.ID)
	delete(c.superseded, h.ID)
}

func (c *Core) place(h *host) {
	h.state = h.stateNow()
	c.states[h.shown()]++
	switch h.state {
	case model.ExecutorUnreachable:
		c.awaitReturn(h, h.live.since)
	case model.ExecutorRegistered:
		c.awaitReturn(h, h.since)
	}
	if h.state == model.ExecutorLost && h.hold.Workers > 0 {
		c.stranded[h.ID] = h
	}
	if h.Record.SupersededWorkers {
		c.superseded[h.ID] = h
	}
	c.listExpired(h)
	if within := c.index.Place(&h.Executor.Executor, h.eligibility()); !within {
		c.overcommitted[h.ID] = h
	}
	c.countUse(h)
}

// awaitReturn adds the host to those that become LOST if they stay absent.
func (c *Core) awaitReturn(h *host, since time.Time) {
	h.AbsentSince = since
	c.absent.Insert(h)
	c.absentChanged = true
}
