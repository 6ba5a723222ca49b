package inventory

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/usage"
)

// IdleExecutor is an executor that may be given work and has no worker.
type IdleExecutor struct {
	ID, SKU string
	usage.IdleReason
	// Since is when the executor became idle, as far as this core saw: when its last worker
	// ended or when it became READY, whichever is later.
	Since time.Time
}

// IdleExecutors returns at most limit idle executors of a SKU, that is, executors that
// have no worker and may be given one. The executors that have been idle longest come
// first, then the lowest ID. An empty name means every SKU. The cost is linear in the
// number of executors.
func (c *Core) IdleExecutors(sku string, limit int) []IdleExecutor {
	found := c.idleFirst(sku, limit, func(a, b *host) int {
		return cmp.Or(a.idleSince().Compare(b.idleSince()), cmp.Compare(a.ID, b.ID))
	})
	list := make([]IdleExecutor, 0, len(found))
	why := c.usage.Reasons()
	for _, h := range found {
		list = append(list, IdleExecutor{ID: h.ID, SKU: h.Record.SKU, IdleReason: why(&h.Executor.Executor),
			Since: h.idleSince()})
	}
	return list
}

// idleFirst returns the first limit idle executors of a SKU in the order of compare. An
// empty name means every SKU.
func (c *Core) idleFirst(sku string, limit int, compare func(a, b *host) int) []*host {
	if limit <= 0 {
		return nil
	}
	folded := constraint.Fold(sku)
	var first []*host
	for h := range c.byID.All() {
		if h.use != usage.Idle || sku != "" && h.Shape().SKU() != folded {
			continue
		}
		if at, _ := slices.BinarySearchFunc(first, h, compare); at < limit {
			first = slices.Insert(first[:min(len(first), limit-1)], at, h)
		}
	}
	return first
}

// idleSince returns when the host became idle.
func (h *host) idleSince() time.Time {
	if since := h.stateSince(); since.After(h.allocation.freed) {
		return since
	}
	return h.allocation.freed
}

// Usage returns the usage of one SKU, or of all SKUs for an empty name, at a time. If
// spare executors are needed, their cooldown restarts. Usage returns an Unavailable
// error until the registry is ready, because pending demand may be incomplete until then, and a
// NotFound error for a SKU that is not known.
func (c *Core) Usage(now time.Time, name string) (usage.Usage, error) {
	if !c.registryReady() {
		return usage.Usage{}, fault.New(fault.Unavailable, fault.ReasonRegistryNotReady,
			"the registry is not ready: pending demand is incomplete")
	}
	if name != "" {
		if err := c.usage.Unknown(name); err != nil {
			return usage.Usage{}, err
		}
	}
	c.passDelays(now)
	u := c.usage.Usage(now, name)
	c.usage.Observe(now, u)
	u.Revision = c.revision
	return u, nil
}

// registryReady reports whether the registry knows all reservations.
func (c *Core) registryReady() bool {
	return c.ready != nil && !c.ready.record.(*model.Ready).Since.IsZero()
}

// UnknownSKU returns an error if a SKU is neither in the catalog nor the SKU of a registered executor.
func (c *Core) UnknownSKU(name string) error { return c.usage.Unknown(name) }

// SKU returns the specification with a name, without regard to case.
func (c *Core) SKU(name string) (model.SKU, bool) { return c.usage.SKU(name) }

// SKUs returns all specifications, in order of name without regard to case.
func (c *Core) SKUs() []model.SKU { return c.usage.SKUs() }

// demandLater is a reservation that becomes pending at a time.
type demandLater struct {
	at  time.Time
	uid string
}

func compareDemand(a, b demandLater) int {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid))
}

// await updates whether a reservation counts as pending, according to the records and the time.
func (c *Core) await(uid string) { c.awaitAt(c.now, uid) }

func (c *Core) awaitAt(now time.Time, uid string) {
	if at, delayed := c.delayedUntil[uid]; delayed {
		c.delayed.Remove(demandLater{at, uid})
		delete(c.delayedUntil, uid)
	}
	r := recordOf[*model.Reservation](c.reservations[uid])
	switch c.demandAt(now, uid, r) {
	case model.DemandNow:
		c.usage.Await(uid, r)
		return
	case model.DemandLater:
		c.delayedUntil[uid] = r.NotBefore
		c.delayed.Insert(demandLater{r.NotBefore, uid})
	}
	c.usage.Await(uid, nil)
}

// demandAt returns what a reservation requests of the executors at a time; r may be nil. No SKU
// here serves a reservation for cells, and the registry tries no version of a quarantined stage.
func (c *Core) demandAt(now time.Time, uid string, r *model.Reservation) model.Demand {
	if r == nil || r.Spec.Constraints.Cells || len(c.quarantined.stages) > 0 && c.quarantined.stages[stageOf(r.Key)] {
		return model.NoDemand
	}
	return r.DemandAt(now, c.leases[uid] != nil || c.dispatched(uid))
}

// passDelays counts the reservations as pending whose time has come.
func (c *Core) passDelays(now time.Time) {
	for first, ok := c.delayed.First(); ok && !first.at.After(now); first, ok = c.delayed.First() {
		c.awaitAt(now, first.uid)
	}
}

// nextDelayed returns when the next reservation becomes pending; zero for never.
func (c *Core) nextDelayed() time.Time {
	first, _ := c.delayed.First()
	return first.at
}
