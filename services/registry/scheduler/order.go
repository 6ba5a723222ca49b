package scheduler

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Order is the strategy that orders reservations. It looks at nothing but the
// reservations, so all replicas have the same order at any time.
type Order interface {
	// Compare orders two pending reservations by their priorities and epochs. It is negative if a is
	// tried before b. If it is 0, the place decides.
	Compare(a, b Rank) int
	// Refused returns what counts of a priority at the tail, after the assigner refused the
	// dispatch of its reservation.
	Refused(p model.Priority) model.Priority
	// ClassOf returns the class that a priority counts as.
	ClassOf(p model.Priority) model.Class
}

// Rank is what an Order compares of a pending reservation.
type Rank struct {
	Priority model.Priority
	// Epoch is that of the reservation, or of the version whose place it took. A reservation that is not
	// durable comes after all durable ones.
	Epoch int64
}

// orders maps the names in the configuration to strategies. To add a strategy, implement
// Order and add its name.
var orders = map[string]Order{"epoch": OrderByEpoch{}, "class": OrderByClass{}}

// OrderNamed returns the strategy with a name. The error lists the known names.
func OrderNamed(name string) (Order, error) {
	if order, ok := orders[name]; ok {
		return order, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(orders)), ", ")
	return nil, fault.BadField(fault.ReasonInvalid, "order", "must be one of %s, got %q", known, name)
}

// OrderByEpoch is the default order: first come, first served, by `priority.order`. If a
// request does not set `priority.order`, it counts as 0 for class REPLACE and as the
// accepting epoch for all other classes.
type OrderByEpoch struct{}

// Compare implements Order.
func (OrderByEpoch) Compare(a, b Rank) int { return cmp.Compare(orderOf(a), orderOf(b)) }

// Refused implements Order. It removes the order and the class REPLACE, which placed the
// reservation before others.
func (OrderByEpoch) Refused(p model.Priority) model.Priority {
	p.Order = nil
	if p.Class == model.ClassReplace {
		p.Class = model.ClassUnset
	}
	return p
}

// ClassOf implements Order. A priority with an order counts as REPLACE, because an order may
// place a reservation before others.
func (OrderByEpoch) ClassOf(p model.Priority) model.Class {
	if p.Order != nil {
		return model.ClassReplace
	}
	return p.Class
}

func orderOf(r Rank) int64 {
	switch {
	case r.Priority.Order != nil:
		return *r.Priority.Order
	case r.Priority.Class == model.ClassReplace:
		return 0
	}
	return r.Epoch
}

// OrderByClass orders by class (REPLACE, SCALE, NEW_JOB, then those without a class), by
// tier, lower first, and by the accepting epoch.
type OrderByClass struct{}

// Compare implements Order.
func (OrderByClass) Compare(a, b Rank) int {
	return cmp.Or(
		cmp.Compare(a.Priority.Class-1, b.Priority.Class-1), // unset wraps to the last
		cmp.Compare(a.Priority.Tier, b.Priority.Tier),
		cmp.Compare(a.Epoch, b.Epoch),
	)
}

// Refused implements Order. The reservation loses its class, and so goes to the tail of
// its tier among the reservations without a class.
func (OrderByClass) Refused(p model.Priority) model.Priority {
	p.Class = model.ClassUnset
	return p
}

// ClassOf implements Order.
func (OrderByClass) ClassOf(p model.Priority) model.Class { return p.Class }

// rankOf returns the rank of a reservation.
func (s *Scheduler) rankOf(r *model.Reservation) Rank {
	rank := Rank{r.Spec.Priority, cmp.Or(r.PlaceEpoch, r.Epoch, math.MaxInt64)}
	if r.RefusedEpoch != 0 {
		rank.Priority = s.config.Order.Refused(rank.Priority)
	}
	return rank
}

// Compare orders all pending reservations across groups; see the package documentation.
// It is 0 only for a reservation and itself.
func (s *Scheduler) Compare(a, b *model.Reservation) int {
	first, second := a.RequeuedFirst(), b.RequeuedFirst()
	switch {
	case first && !second:
		return -1
	case !first && second:
		return 1
	case !first:
		if order := s.config.Order.Compare(s.rankOf(a), s.rankOf(b)); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(a.FirstIndex(), b.FirstIndex()), cmp.Compare(a.UID, b.UID))
}
