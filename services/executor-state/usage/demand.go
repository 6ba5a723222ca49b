package usage

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// demand holds the pending reservations of one group.
type demand struct {
	// text is the canonical text of the constraints. constraints are the folded constraints,
	// so they do not depend on which reservation came first. They leave out the preferences
	// that do not define a group.
	text        string
	constraints constraint.Constraints
	// batches counts the reservations by size.
	batches      map[size]int
	reservations int
	workers      int64
	// avoiding holds the reservations that avoid executors, by UID.
	avoiding map[string]*pending
}

// size determines how many executors a batch needs. each is how many of the workers one
// executor may take; 0 means no limit.
type size struct {
	workers int
	each    int32
}

// pending is a reservation as it was counted.
type pending struct {
	reservation *model.Reservation
	demand      *demand
	size        size
}

// Await counts the reservation with a UID as pending, that is, QUEUED, without a lease
// and not dispatched. A nil reservation removes it from the count.
func (t *Tally) Await(uid string, r *model.Reservation) {
	before := t.pending[uid]
	if before == nil && r == nil || before != nil && before.reservation == r {
		return
	}
	if before != nil {
		before.demand.count(before.size, -1)
		delete(before.demand.avoiding, uid)
		if before.demand.reservations == 0 {
			delete(t.demand, before.demand.text)
		}
		delete(t.pending, uid)
	}
	if r == nil {
		return
	}
	next := &pending{reservation: r, demand: t.demandOf(r.Spec.Constraints), size: size{workers: r.Workers.Len()}}
	if spread := r.Spec.Constraints.Spread; spread.Single() {
		next.size.each = spread.Max
	}
	next.demand.count(next.size, 1)
	if avoids(r) {
		next.demand.avoiding[uid] = next
	}
	t.pending[uid] = next
}

func (t *Tally) demandOf(k constraint.Constraints) *demand {
	text := k.Canonical()
	d := t.demand[text]
	if d == nil {
		k = k.Folded()
		k.SameShape, k.Spread, k.Pack, k.Avoid, k.AvoidFailed = false, constraint.Spread{}, false, nil, nil
		d = &demand{text: text, constraints: k, batches: map[size]int{}, avoiding: map[string]*pending{}}
		t.demand[text] = d
	}
	return d
}

// count adds n reservations of a size.
func (d *demand) count(s size, n int) {
	d.reservations += n
	d.workers += int64(n) * int64(s.workers)
	d.batches[s] += n
	if d.batches[s] == 0 {
		delete(d.batches, s)
	}
}
