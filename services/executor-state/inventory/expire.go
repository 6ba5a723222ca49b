package inventory

import (
	"cmp"
	"time"

	"berth.dev/pkg/model"
)

// deletesPerEffect bounds the executors that one effect deletes, so that the effect fits
// into a transaction.
const deletesPerEffect = 100

// compareExpired orders executors by when they became LOST.
func compareExpired(a, b *host) int {
	return cmp.Or(a.Record.Since.Compare(b.Record.Since), cmp.Compare(a.ID, b.ID))
}

// listExpired adds the host to expired if it is LOST and no record names it. The record
// of a host that a lease names must stay, so that the lease finds the host. The same
// holds for a task: the registry learns from the task which executor to avoid.
func (c *Core) listExpired(h *host) {
	if h.state == model.ExecutorLost && !h.allocation.mentioned() {
		c.expired.Insert(h)
	}
}

// nextDelete returns when the next executor's record is to be deleted; zero means never.
func (c *Core) nextDelete() time.Time {
	h, ok := c.expired.First()
	if !ok || c.quarantined.forgotten {
		return time.Time{}
	}
	return h.Record.Since.Add(c.cfg.LostRetention)
}

// deleteExpired deletes the records of executors that have been LOST for LostRetention
// and that no record names. Otherwise the records of a fleet whose hosts get new names
// would grow without bound. It stores the greatest ordinal and incarnation of the deleted
// executors, so that neither is used again. Drains of these executors end. Requests to
// disable stay, for an executor that registers under the same ID later.
func (c *Core) deleteExpired() {
	if c.quarantined.forgotten {
		return
	}
	var effect model.Effect
	next := c.forgotten
	for h := range c.expired.All() {
		if len(effect.Deletes) == deletesPerEffect || h.Record.Since.Add(c.cfg.LostRetention).After(c.now) {
			break
		}
		effect.Deletes = append(effect.Deletes, h.Record.Ref())
		next.Ordinal = max(next.Ordinal, h.Record.Ordinal)
		next.Incarnation = max(next.Incarnation, h.Record.Incarnation)
	}
	for _, ref := range effect.Deletes {
		c.requests.EndDrains(c.now, ref.ID)
	}
	if len(effect.Deletes) > 0 {
		effect.Puts = []model.Record{&next}
		c.decide(effect)
	}
}
