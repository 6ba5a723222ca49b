package inventory

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// disables are the requests to disable, in the orders in which they are looked
// for. What has ended is in due alone.
type disables struct {
	// named holds, by executor, the ids of the requests that name it, in order;
	// names counts them all, unknown those of ids without an executor.
	named          map[string][]string
	names, unknown int
	// byKind are the requests that hold and go by attributes, which are folded.
	byKind map[string]match.Attributes
	// due orders requests by when something is to be done with them, untold
	// those of which jobs are still to be told.
	due, untold core.Ordered[*model.Disable]
}

func newDisables() disables {
	return disables{
		named:  map[string][]string{},
		byKind: map[string]match.Attributes{},
		due:    core.NewOrdered(compareDue),
		untold: core.NewOrdered(func(a, b *model.Disable) int { return cmp.Compare(a.ID, b.ID) }),
	}
}

// dueAt is when the request expires or, once it has ended, is forgotten; zero
// for never.
func dueAt(d *model.Disable) time.Time {
	if d.Holds() {
		return d.ExpireAt
	}
	return d.EndedAt.Add(model.KeepDisable)
}

func compareDue(a, b *model.Disable) int {
	return cmp.Or(dueAt(a).Compare(dueAt(b)), cmp.Compare(a.ID, b.ID))
}

// selects matches the executors that have all the attributes.
func selects(attributes map[string]string) constraint.Matcher {
	return constraint.Constraints{Attributes: attributes}.Matcher()
}

func (s *disables) add(d *model.Disable) {
	if !dueAt(d).IsZero() {
		s.due.Insert(d)
	}
	if !d.Holds() {
		return
	}
	if !d.ToldAll {
		s.untold.Insert(d)
	}
	s.names += len(d.IDs)
}

func (s *disables) remove(d *model.Disable) {
	if !dueAt(d).IsZero() {
		s.due.Remove(d)
	}
	if !d.Holds() {
		return
	}
	if !d.ToldAll {
		s.untold.Remove(d)
	}
	s.names -= len(d.IDs)
}

// next is the earliest time at which something is due; zero for never.
func (s *disables) next() time.Time {
	first, ok := s.due.First()
	if !ok {
		return time.Time{}
	}
	return dueAt(first)
}

// known answers what is kept of the request to disable with an id; nil for
// nothing.
func (c *Core) known(id string) *model.Disable {
	return disableOf(c.records[model.Ref{Kind: model.KindDisable, ID: id}])
}

func disableOf(h *held) *model.Disable {
	if h == nil {
		return nil
	}
	return h.record.(*model.Disable)
}

func (c *Core) setDisable(prev, next *held) {
	was, is := disableOf(prev), disableOf(next)
	if was != nil {
		c.disables.remove(was)
	}
	if is != nil {
		c.disables.add(is)
	}
	if !sameHold(was, is) {
		c.hold(was, removeID)
		c.hold(is, insertID)
		c.holdByKind(was, is)
	}
}

// sameHold says whether two versions of a request hold for the same executors.
func sameHold(a, b *model.Disable) bool {
	aHolds, bHolds := a != nil && a.Holds(), b != nil && b.Holds()
	if !aHolds || !bHolds {
		return aHolds == bHolds
	}
	return slices.Equal(a.IDs, b.IDs) && sameAttributes(a.Attributes, b.Attributes)
}

// hold changes the lists of requests of those that one names.
func (c *Core) hold(d *model.Disable, change func(ids []string, id string) []string) {
	if d == nil || !d.Holds() {
		return
	}
	for _, id := range d.IDs {
		before := len(c.disables.named[id])
		list := change(c.disables.named[id], d.ID)
		if c.disables.named[id] = list; len(list) == 0 {
			delete(c.disables.named, id)
		}
		h := c.hosts[id]
		if h == nil {
			c.disables.unknown += len(list) - before
			continue
		}
		if (len(h.named) > 0) == (len(list) > 0) {
			h.named = list
			c.absentChanged = c.absentChanged || h.absent // it may be leaving now
			continue
		}
		c.unplace(h)
		h.named = list
		c.place(h)
	}
}

// sameAttributes compares without regard to case.
func sameAttributes(a, b map[string]string) bool {
	return match.AttributesKey(a) == match.AttributesKey(b)
}

// countHeld counts the executors that a request holds for.
func (c *Core) countHeld(d *model.Disable) int {
	n := 0
	if !d.Holds() {
		return n
	}
	for _, id := range d.IDs {
		if c.hosts[id] != nil {
			n++
		}
	}
	if len(d.Attributes) > 0 {
		for k := range c.index.Classes(nil) {
			if k.IsClosedBy(d.ID) {
				n += len(k.Executors())
			}
		}
	}
	return n
}

// requests are the ids of those that take the executor out of allocation, in
// order.
func (h *host) requests() []string {
	return slices.Sorted(slices.Values(slices.Concat(h.named, h.Class().ClosedBy())))
}

// withheld reports whether a request takes the executor out of allocation.
func (h *host) withheld() bool { return len(h.named)+len(h.Class().ClosedBy()) > 0 }

// drained says whether a request to drain holds for the executor.
func (c *Core) drained(id string) bool {
	return slices.ContainsFunc(c.disables.named[id], func(request string) bool { return c.known(request).Drain })
}

// leaving says whether the executor is expected to be gone: it was claimed for
// scale-down, is drained and holds no worker, or was drained after it went,
// which is how an operator says that it will not come back.
func (c *Core) leaving(h *host) bool {
	return slices.ContainsFunc(h.named, func(request string) bool {
		d := c.known(request)
		return d.Claim || d.Drain && (h.hold.Workers == 0 || h.absent && d.CreatedAt.After(h.goneAt))
	})
}

// namesPerStep bounds the executors that requests which end in one step name: to
// put one back takes some microseconds.
const namesPerStep = 2048

// endDisables ends requests that have expired, and forgets those that ended
// long ago.
func (c *Core) endDisables() {
	names := 0
	for range c.cfg.StepLimit {
		d, ok := c.disables.due.First()
		if !ok || dueAt(d).After(c.now) || names >= namesPerStep {
			return
		}
		if !d.Holds() {
			c.decide(model.Effect{Deletes: []model.Ref{d.Ref()}})
			continue
		}
		names += len(d.IDs)
		c.decide(c.ending(d))
	}
}

// ending is the effect that ends a request as a whole.
func (c *Core) ending(d *model.Disable) model.Effect { return c.letGo(d, d.IDs) }

// letGo is the effect that takes ids out of a request, and ends it when none
// is left or it goes by attributes. Executors that no other request drains
// stop draining with it.
func (c *Core) letGo(d *model.Disable, ids []string) model.Effect {
	freed := make(map[string]bool, len(ids))
	for _, id := range ids {
		freed[id] = true
	}
	next := *d
	next.IDs = slices.DeleteFunc(slices.Clone(d.IDs), func(id string) bool { return freed[id] })
	if len(next.IDs) == 0 {
		// It keeps what it named: a repeat of its call is compared with it.
		next.IDs, next.EndedAt = d.IDs, c.now
	}
	effect := model.Effect{Puts: []model.Record{&next}}
	if !d.Drain {
		return effect
	}
	for _, id := range d.IDs {
		h := c.hosts[id]
		if h == nil || !h.executor.Draining || !freed[id] {
			continue
		}
		others := func(request string) bool { return request != d.ID && c.known(request).Drain }
		if !slices.ContainsFunc(c.disables.named[id], others) {
			executor := *h.executor
			executor.Draining = false
			effect.Puts = append(effect.Puts, &executor)
		}
	}
	return effect
}
