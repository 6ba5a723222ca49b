package inventory

import (
	"cmp"
	"time"

	"berth.dev/pkg/model"
)

// forgetPerEffect is how many executors are forgotten in one effect, so that it
// fits a transaction.
const forgetPerEffect = 100

// compareExpired orders executors that are LOST by since when.
func compareExpired(a, b *host) int {
	return cmp.Or(a.Record.Since.Compare(b.Record.Since), cmp.Compare(a.ID, b.ID))
}

// listPast lists the host among those that are forgotten in time, where it is LOST
// and nothing names it; unlistPast takes it off the list. A lease has to find the
// executors that it names, and a task too: the registry learns from it which
// executor to avoid.
func (c *Core) listExpired(h *host) {
	if h.state == model.ExecutorLost && !h.hold.mentioned() {
		c.expired.Insert(h)
	}
}

// nextDelete is when the next executor is to be forgotten; zero for never.
func (c *Core) nextDelete() time.Time {
	h, ok := c.expired.First()
	if !ok || c.quarantined.forgotten {
		return time.Time{}
	}
	return h.Record.Since.Add(c.cfg.LostRetention)
}

// deleteExpired deletes the records of executors that have been LOST for long, and
// that nothing names: else a fleet whose hosts have fresh names would grow for
// ever. The greatest ordinal and incarnation among them are kept, so that neither
// is given again. Requests to drain them have had their effect and end first;
// requests to disable stay for who comes back under the id.
func (c *Core) deleteExpired() {
	if c.quarantined.forgotten {
		return
	}
	var effect model.Effect
	next := c.forgotten
	for h := range c.expired.All() {
		if len(effect.Deletes) == forgetPerEffect || h.Record.Since.Add(c.cfg.LostRetention).After(c.now) {
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
