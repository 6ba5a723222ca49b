package inventory

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// disables are the requests to disable, in the orders in which they are looked
// for. What has ended is in due alone.
type disables struct {
	// named holds, by executor, the ids of the requests that name it.
	named map[string][]string
	// byKind are the requests that go by attributes.
	byKind map[string]constraint.Matcher
	// due orders requests by when something is to be done with them, untold
	// those of which jobs are still to be told.
	due, untold ordered[*model.Disable]
}

func newDisables() disables {
	return disables{
		named:  map[string][]string{},
		byKind: map[string]constraint.Matcher{},
		due:    ordered[*model.Disable]{compare: compareDue},
		untold: ordered[*model.Disable]{compare: func(a, b *model.Disable) int { return cmp.Compare(a.ID, b.ID) }},
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
		s.due.insert(d)
	}
	if !d.Holds() {
		return
	}
	if !d.ToldAll {
		s.untold.insert(d)
	}
	if len(d.Attributes) > 0 {
		s.byKind[d.ID] = selects(d.Attributes)
	}
	for _, id := range d.IDs {
		at, _ := slices.BinarySearch(s.named[id], d.ID)
		s.named[id] = slices.Insert(s.named[id], at, d.ID)
	}
}

func (s *disables) remove(d *model.Disable) {
	if !dueAt(d).IsZero() {
		s.due.remove(d)
	}
	if !d.Holds() {
		return
	}
	if !d.ToldAll {
		s.untold.remove(d)
	}
	delete(s.byKind, d.ID)
	for _, id := range d.IDs {
		at, _ := slices.BinarySearch(s.named[id], d.ID)
		if s.named[id] = slices.Delete(s.named[id], at, at+1); len(s.named[id]) == 0 {
			delete(s.named, id)
		}
	}
}

// of answers the ids of the requests that hold for a host, in order.
func (s *disables) of(h *host) []string {
	list := slices.Clone(s.named[h.id])
	for id, kind := range s.byKind {
		if ok, _ := kind.Match(h.class.host); ok {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// next is the earliest time at which something is due; zero for never.
func (s *disables) next() time.Time {
	first, ok := s.due.first()
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
	if sameHold(was, is) {
		return
	}
	for _, d := range []*model.Disable{was, is} {
		for h := range c.heldBy(d) {
			c.unplace(h)
			h.requests = c.disables.of(h)
			c.place(h)
		}
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

// sameAttributes compares without regard to case.
func sameAttributes(a, b map[string]string) bool { return attributesKey(a) == attributesKey(b) }

// heldBy gives the executors that a request holds for, in order of id.
func (c *Core) heldBy(d *model.Disable) iter.Seq[*host] {
	return func(yield func(*host) bool) {
		switch {
		case d == nil || !d.Holds():
		case len(d.Attributes) > 0:
			kind := selects(d.Attributes)
			matches := map[*class]bool{}
			for h := range c.byID.all() {
				match, asked := matches[h.class]
				if !asked {
					match, _ = kind.Match(h.class.host)
					matches[h.class] = match
				}
				if match && !yield(h) {
					return
				}
			}
		default:
			for _, id := range slices.Sorted(slices.Values(d.IDs)) {
				if h := c.hosts[id]; h != nil && !yield(h) {
					return
				}
			}
		}
	}
}

// drained says whether a request to drain holds for the executor.
func (c *Core) drained(id string) bool {
	return slices.ContainsFunc(c.disables.named[id], func(request string) bool { return c.known(request).Drain })
}

// leaving says whether the executor is expected to be gone: it was claimed for
// scale-down, is drained and holds no worker, or was drained after it went,
// which is how an operator says that it will not come back.
func (c *Core) leaving(h *host) bool {
	return slices.ContainsFunc(h.requests, func(request string) bool {
		d := c.known(request)
		return d.Claim || d.Drain && (h.hold.workers == 0 || h.absent && d.CreatedAt.After(h.goneAt))
	})
}

// endDisables ends requests that have expired, and forgets those that ended
// long ago.
func (c *Core) endDisables() {
	for range c.cfg.StepLimit {
		d, ok := c.disables.due.first()
		if !ok || dueAt(d).After(c.now) {
			return
		}
		if d.Holds() {
			c.decide(c.ending(d))
		} else {
			c.decide(model.Effect{Deletes: []model.Ref{d.Ref()}})
		}
	}
}

// ending is the effect that ends a request as a whole.
func (c *Core) ending(d *model.Disable) model.Effect { return c.letGo(d, d.IDs) }

// letGo is the effect that takes ids out of a request, and ends it when none
// is left or it goes by attributes. Executors that no other request drains
// stop draining with it.
func (c *Core) letGo(d *model.Disable, ids []string) model.Effect {
	next := *d
	next.IDs = slices.DeleteFunc(slices.Clone(d.IDs), func(id string) bool { return slices.Contains(ids, id) })
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
		if h == nil || !h.executor.Draining || !slices.Contains(ids, id) {
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

// attributesKey is equal for attributes that are equal without regard to case.
func attributesKey(attributes map[string]string) string {
	folded := make([]string, 0, len(attributes))
	for name, value := range attributes {
		folded = append(folded, fmt.Sprintf("%q=%q", constraint.Fold(name), constraint.Fold(value)))
	}
	slices.Sort(folded)
	return strings.Join(folded, ",")
}
