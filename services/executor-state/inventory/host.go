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
	// live is the entry of its presence, also if the presence has ended; nil if there was
	// none.
	live       *entry
	allocation *allocation
	// refusal is the assigner's record that the agent rejects its requests; nil if there is
	// none.
	refusal *entry

	state model.ExecutorState
	// use and disabled are how usage counts the host.
	use      usage.Use
	disabled bool
	term     hostTerm
}

// hostTerm holds what only this leader knows about an executor.
type hostTerm struct {
	// supersededAt is when a superseded agent last reported live workers of its own.
	supersededAt time.Time
	// releasedAt is when the executor was last released from a mass loss. The clock of its
	// absence restarts then.
	releasedAt time.Time
	// rejectedAt is when the cell last rejected an offer.
	rejectedAt time.Time
	// missed counts the offers in a row that the cell did not answer in time, and missedSince is
	// when it missed the first of them.
	missed      int
	missedSince time.Time
}

// allocation is what leases and volumes use of the executor with an ordinal. It is stored by
// ordinal because the view may show a lease before the records of its executors.
type allocation struct {
	match.Leased
	ordinal uint32
	host    *host
	// placements counts the workers that each lease has on the executor, in order of UID.
	placements []placement
	// volumes holds the volumes whose home is the executor, by ID; nil without volumes.
	volumes map[string]*volume
	// offers holds the open offers to the cell with this ordinal, by UID; nil for a host.
	offers map[string]*model.Offer
	// offerBytes is their approximate size.
	offerBytes int
	// offersChanged is the number of the last change of an offer to the cell.
	offersChanged uint64
	// tasked counts the workers that tasks name on the ordinal. running counts the tasked
	// workers that run.
	tasked, running int
	// freed is when this core last saw the executor's last worker end.
	freed time.Time
	// isolated reports whether an unreadable record hides a part of what leases use of the
	// executor.
	isolated bool
	// started is when a worker was last started on the executor, as far as this core saw.
	// failing holds the failed starts since; nil if there are none.
	started time.Time
	failing *failing
	// unanswered has when the first request about a worker was given up that the executor has
	// not answered; nil if there is none.
	unanswered map[taskedWorker]time.Time
}

// placement is the workers of one lease on one executor.
type placement struct {
	uid     string
	workers int
}

// place changes the number of workers that a lease has here by n, which may be negative.
func (h *allocation) place(uid string, n int) {
	at, found := slices.BinarySearchFunc(h.placements, uid,
		func(p placement, uid string) int { return cmp.Compare(p.uid, uid) })
	if !found {
		h.placements = slices.Insert(h.placements, at, placement{uid: uid})
	}
	if h.placements[at].workers += n; h.placements[at].workers == 0 {
		h.placements = slices.Delete(h.placements, at, at+1)
	}
}

// mentioned reports whether a lease, a task, a volume or an offer names the ordinal, or may name
// it.
func (h *allocation) mentioned() bool {
	return h.Workers != 0 || h.Volumes != 0 || h.tasked != 0 || h.isolated || len(h.offers) != 0
}

func compareIDs(a, b *host) int { return cmp.Compare(a.ID, b.ID) }

func compareAbsence(a, b *host) int {
	return cmp.Or(a.AbsentSince.Compare(b.AbsentSince), cmp.Compare(a.ID, b.ID))
}

// present reports whether live is a presence of the incarnation.
func present(live *entry, incarnation int64) bool {
	if live == nil || live.record == nil {
		return false
	}
	return live.record.(*model.Live).Incarnation == incarnation
}

// stateNow derives the state. An incarnation whose presence this core never saw is
// REGISTERED, even if its presence ended before this replica started. It becomes LOST if
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

// shown returns the state as reported. An executor is reported as REGISTERED instead of
// READY in these cases: it was LOST and has returned with workers from before, it has
// orphaned workers or workers of a superseded agent, or it rejects the assigner.
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

// stateSince returns since when the host has been in its state, as far as this core
// knows.
func (h *host) stateSince() time.Time {
	switch h.state {
	case model.ExecutorReady, model.ExecutorUnreachable:
		return h.live.since
	}
	return h.Record.Since
}

// eligibility returns the eligibility as far as records about the executor decide it.
// Package match adds what the executor's class and leases decide: Disabled by attributes
// and Overcommitted (the method derive of match.Executor). An executor gets work, and
// counts as idle, only if the combined result is Eligible.
func (h *host) eligibility() match.Eligibility {
	switch {
	case h.shown() == model.ExecutorRegistered:
		return match.Registered
	case h.state == model.ExecutorUnreachable:
		return match.Unreachable
	case h.state == model.ExecutorLost:
		return match.Lost
	case h.allocation.isolated:
		return match.Quarantined
	case h.Record.Draining:
		return match.Draining
	case len(h.Named) > 0:
		return match.Disabled
	case h.allocation.skips():
		return match.FailsStarts
	}
	return match.Eligible
}

func (h *host) useNow() usage.Use {
	switch {
	case h.state == model.ExecutorLost:
		return usage.Lost
	case h.state != model.ExecutorReady:
		return usage.Unavailable
	case h.allocation.Workers > 0 && h.allocation.running > 0:
		return usage.Running
	case h.allocation.Workers > 0:
		return usage.Leased
	case h.allocation.Volumes > 0:
		return usage.VolumesOnly
	case h.Eligibility() != match.Eligible:
		return usage.Unavailable
	}
	return usage.Idle
}

// countUse counts the executor by its use. forgetUse undoes that.
func (c *Core) countUse(h *host) {
	if h.Record.Cell {
		return // nobody scales cells
	}
	h.use, h.disabled = h.useNow(), h.Withheld() || h.Record.Draining
	c.usage.Count(c.now, h.Shape().SKU(), h.use, h.disabled, 1)
}

func (c *Core) forgetUse(h *host) {
	if !h.Record.Cell {
		c.usage.Count(c.now, h.Shape().SKU(), h.use, h.disabled, -1)
	}
}

func (c *Core) setExecutor(id string, next *entry) {
	h := c.hosts[id]
	if h != nil {
		c.leaveFailing(h.allocation)
		defer c.boundSkipped(h.Shape().SKU())
		c.unplace(h)
		c.byID.Remove(h)
		c.offers.cells.Delete(h)
		c.requests.Leave(&h.Executor)
		h.allocation.host = nil
		c.trackSilence(h.allocation)
		c.dropAllocation(h.Record.Ordinal)
	}
	if next == nil {
		c.index.Set(&h.Executor.Executor, nil)
		delete(c.hosts, id)
		c.dropList(id)
		return
	}
	if h == nil {
		h = &host{live: c.records[model.Ref{Kind: model.KindLive, ID: id}], refusal: c.records[model.RefusalRef(id)]}
		h.ID = id
		c.hosts[id] = h
	}
	e := next.record.(*model.Executor)
	h.Record, h.since = e, next.since
	h.allocation = c.allocationOf(e.Ordinal)
	h.allocation.host = h
	h.Ordinal, h.Leased = e.Ordinal, &h.allocation.Leased
	c.index.Set(&h.Executor.Executor, &match.Kind{
		SKU: e.SKU, Attributes: e.Attributes, Resources: e.Resources, Reserved: e.Reserved, Generation: e.Generation,
		Cell: e.Cell, AllowLists: e.AllowLists,
	})
	c.byID.Insert(h)
	if e.Cell {
		c.offers.cells.Insert(h)
	}
	c.requests.Enter(&h.Executor)
	c.place(h)
	c.markHome(h.allocation)
	if h.allocation.failing != nil {
		c.reviewFailures(h.allocation) // a registration after a failure ends a silence
	}
	c.trackSilence(h.allocation)
	c.boundSkipped(h.Shape().SKU())
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

// take changes what leases use on an ordinal by n workers of a chunk; n may be negative.
// Workers on volumes use nothing in addition to their volumes.
func (c *Core) take(ordinal uint32, n int, chunk *model.LeaseChunk) {
	allocation := c.allocationOf(ordinal)
	if allocation.host != nil {
		c.unplace(allocation.host)
		defer c.place(allocation.host)
	}
	if chunk.OnVolumes {
		allocation.Add(n, nil, "") // the volumes hold what the workers use
	} else {
		allocation.Add(n, chunk.Each, chunk.Role)
	}
	allocation.place(chunk.UID, n)
	if allocation.Workers == 0 {
		allocation.freed = c.now
	}
	c.dropAllocation(ordinal)
}

// task changes the counts of workers that tasks name on an ordinal and of those workers
// that run. Either change may be negative.
func (c *Core) task(ordinal uint32, tasked, running int) {
	allocation := c.allocationOf(ordinal)
	h := allocation.host
	if h != nil {
		c.forgetUse(h)
		c.expired.Delete(h)
	}
	allocation.tasked += tasked
	allocation.running += running
	if h != nil {
		c.countUse(h)
		c.listExpired(h)
	}
	c.dropAllocation(ordinal)
}

func (c *Core) allocationOf(ordinal uint32) *allocation {
	h := c.allocations[ordinal]
	if h == nil {
		h = &allocation{ordinal: ordinal}
		c.allocations[ordinal] = h
		c.ordinals.Insert(ordinal)
		c.lastOrdinal = max(c.lastOrdinal, ordinal)
	}
	return h
}

// dropAllocation removes the allocation of an ordinal that no executor, lease, task or volume
// names and that has no failed starts.
func (c *Core) dropAllocation(ordinal uint32) {
	if h := c.allocations[ordinal]; h.host != nil || h.mentioned() || h.failing != nil || h.unanswered != nil {
		return
	}
	delete(c.allocations, ordinal)
	c.ordinals.Remove(ordinal)
	c.lastOrdinal, _ = c.ordinals.First()
}

// unplace removes the host from every index that depends on its state and its free
// resources. place adds it again. The state and the free resources may change only
// between the call of unplace and the call of place.
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
	delete(c.returned, h.ID)
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
	if h.state == model.ExecutorLost && h.allocation.Workers > 0 {
		c.stranded[h.ID] = h
	}
	if h.returned() {
		c.returned[h.ID] = h
	}
	if h.Record.SupersededWorkers {
		c.superseded[h.ID] = h
	}
	if h.Record.Cell {
		c.markOffers(h.allocation)
	}
	c.listExpired(h)
	if within := c.index.Place(&h.Executor.Executor, h.eligibility()); !within {
		c.overcommitted[h.ID] = h
	}
	c.countUse(h)
}

// awaitReturn adds the host to the absent executors, which become LOST if they stay
// absent.
func (c *Core) awaitReturn(h *host, since time.Time) {
	h.AbsentSince = since
	c.absent.Insert(h)
	c.absentChanged = true
}
