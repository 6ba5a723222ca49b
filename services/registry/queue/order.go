package queue

import (
	"cmp"
	"math"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Order is the strategy that a queue is ordered by. It looks at reservations
// alone, so that every replica comes to the same order at any time.
type Order interface {
	// Compare orders two reservations that wait; negative when a is tried
	// before b. Where it answers 0, the place decides: ties never lose a reservation.
	Compare(a, b *model.Reservation) int
	// Refused is told that the assigner refused a reservation, and answers the
	// priority it has from now on at its new place.
	Refused(r *model.Reservation) model.Priority
}

// orders are the strategies by the names that configuration knows them by. To
// add one, implement Order and add a line; nothing else knows of them. Beside
// the strategy stand what always holds: ties go by place, and cycles have the
// heads of all queues in the one order across queues.
var orders = []struct {
	name  string
	order Order
}{
	{"epoch", OrderByEpoch{}},
	{"class", OrderByClass{}},
}

// OrderNamed finds a strategy by its name. The error tells which there are.
func OrderNamed(name string) (Order, error) {
	var names []string
	for _, o := range orders {
		if o.name == name {
			return o.order, nil
		}
		names = append(names, o.name)
	}
	return nil, fault.BadField(fault.ReasonInvalid, "order", "%q is no order of the queues; there are: %s", name, strings.Join(names, ", "))
}

// OrderByEpoch is the default order: `priority.order` where it is given, class
// REPLACE counting as 0 without one, and the accepting epoch otherwise: first
// come, first served.
type OrderByEpoch struct{}

// Compare implements Order.
func (OrderByEpoch) Compare(a, b *model.Reservation) int {
	return cmp.Compare(orderOf(a), orderOf(b))
}

// Refused implements Order: what placed it before others is taken from it, so
// that it goes to the tail.
func (OrderByEpoch) Refused(r *model.Reservation) model.Priority {
	p := r.Spec.Priority
	p.Order = nil
	if p.Class == model.ClassReplace {
		p.Class = model.ClassUnset
	}
	return p
}

func orderOf(r *model.Reservation) int64 {
	switch {
	case r.Spec.Priority.Order != nil:
		return *r.Spec.Priority.Order
	case r.Spec.Priority.Class == model.ClassReplace:
		return 0
	}
	return epochOf(r)
}

// OrderByClass orders by class (REPLACE, SCALE, NEW_JOB, then those without),
// then tier, lower first, then the accepting epoch.
type OrderByClass struct{}

// Compare implements Order.
func (OrderByClass) Compare(a, b *model.Reservation) int {
	return cmp.Or(
		cmp.Compare(a.Spec.Priority.Class-1, b.Spec.Priority.Class-1), // unset wraps to the last
		cmp.Compare(a.Spec.Priority.Tier, b.Spec.Priority.Tier),
		cmp.Compare(epochOf(a), epochOf(b)),
	)
}

// Refused implements Order: it goes to the tail of its tier in what has no class,
// where later ones come after it.
func (OrderByClass) Refused(r *model.Reservation) model.Priority {
	p := r.Spec.Priority
	p.Class = model.ClassUnset
	return p
}

// epochOf is the epoch that a reservation queues by: its own, or that of the
// version whose place it took. What is not durable yet comes after all that is.
func epochOf(r *model.Reservation) int64 {
	switch {
	case r.PlaceEpoch != 0:
		return r.PlaceEpoch
	case r.Epoch != 0:
		return r.Epoch
	}
	return math.MaxInt64
}

// compare is the whole order of the queue: what is requeued first, by place
// alone; then the strategy, then the place. Only parts share their place with
// one another and with the rest of their batch: the lower worker indexes come first.
func (c *Core) compare(a, b *model.Reservation) int {
	if x, y := a.Origin == model.OriginRequeue, b.Origin == model.OriginRequeue; x != y {
		if x {
			return -1
		}
		return 1
	} else if !x {
		if order := c.config.Order.Compare(a, b); order != 0 {
			return order
		}
	}
	return cmp.Or(cmp.Compare(a.Place, b.Place), cmp.Compare(firstIndex(a), firstIndex(b)), cmp.Compare(a.UID, b.UID))
}

// firstIndex is the lowest index that a reservation asks for.
func firstIndex(r *model.Reservation) int32 {
	if len(r.Workers) == 0 {
		return 0
	}
	return r.Workers[0].First
}
