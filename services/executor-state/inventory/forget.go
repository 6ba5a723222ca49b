package inventory

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// forgetPerEffect is how many executors are forgotten in one effect, so that it
// fits a transaction.
const forgetPerEffect = 100

// comparePast orders executors that are LOST by since when.
func comparePast(a, b *host) int {
	return cmp.Or(a.executor.Since.Compare(b.executor.Since), cmp.Compare(a.ID, b.ID))
}

// listPast lists the host among those that are forgotten in time, where it is LOST
// and nothing names it; unlistPast takes it off the list. A lease has to find the
// executors that it names, and a task too: the registry learns from it which
// executor to avoid.
func (c *Core) listPast(h *host) {
	if h.state == model.ExecutorLost && !h.hold.mentioned() {
		c.past.Insert(h)
		h.past = true
	}
}

func (c *Core) unlistPast(h *host) {
	if h.past {
		c.past.Remove(h)
		h.past = false
	}
}

// forgetAt is when the next executor is to be forgotten; zero for never.
func (c *Core) forgetAt() time.Time {
	h, ok := c.past.First()
	if !ok || c.aside.forgotten {
		return time.Time{}
	}
	return h.executor.Since.Add(c.cfg.LostRetention)
}

// forgetPast deletes the records of executors that have been LOST for long, and
// that nothing names: else a fleet whose hosts have fresh names would grow for
// ever. The greatest ordinal and incarnation among them are kept, so that neither
// is given again. Requests to drain them have had their effect and end first;
// requests to disable stay for who comes back under the id.
func (c *Core) forgetPast() {
	if c.aside.forgotten {
		return
	}
	var effect model.Effect
	next := c.forgotten
	for h := range c.past.All() {
		if len(effect.Deletes) == forgetPerEffect || h.executor.Since.Add(c.cfg.LostRetention).After(c.now) {
			break
		}
		effect.Deletes = append(effect.Deletes, h.executor.Ref())
		next.Ordinal = max(next.Ordinal, h.executor.Ordinal)
		next.Incarnation = max(next.Incarnation, h.executor.Incarnation)
	}
	for _, ref := range effect.Deletes {
		for _, request := range slices.Clone(c.disables.named[ref.ID]) {
			if d := c.known(request); d.Drain {
				c.decide(c.ending(d))
			}
		}
	}
	if len(effect.Deletes) > 0 {
		effect.Puts = []model.Record{&next}
		c.decide(effect)
	}
}
