package usage

import (
	"cmp"

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
	// batches counts the reservations by their number of workers.
	batches      map[int]int
	reservations int
	workers      int64
	// spread counts the workers of the reservations that limit how many run on one executor.
	spread map[spread]int64
	// avoiding holds the reservations that may not use some executors, by UID.
	avoiding map[string]*pending
}

// spread identifies the workers of all pending versions of a reservation of which one executor
// may take each.
type spread struct {
	key  model.Key
	each int32
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

// Await counts the reservation with a UID as pending. A nil reservation removes it from the
// count.
func (t *Tally) Await(uid string, r *model.Reservation) {
	before := t.pending[uid]
	if before == nil && r == nil || before != nil && before.reservation == r {
		return
	}
	if before != nil {
		before.count(-1)
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
	next.count(1)
	if avoids(r) || mayExclude(r.Spec.Constraints) {
		next.demand.avoiding[uid] = next
	}
	t.pending[uid] = next
}

func (t *Tally) demandOf(k constraint.Constraints) *demand {
	text := k.Canonical()
	d := t.demand[text]
	if d == nil {
		k = k.Folded()
		k.SameShape, k.Spread, k.Pack = false, constraint.Spread{}, false
		k.Avoid, k.AvoidFailed, k.RefusedBy = nil, nil, nil
		d = &demand{text: text, constraints: k, batches: map[int]int{}, avoiding: map[string]*pending{}}
		t.demand[text] = d
	}
	return d
}

// count adds the reservation to its group n times; n is 1 or -1.
func (p *pending) count(n int) {
	d, workers := p.demand, int64(n)*int64(p.size.workers)
	d.reservations += n
	d.workers += workers
	d.batches[p.size.workers] += n
	if d.batches[p.size.workers] == 0 {
		delete(d.batches, p.size.workers)
	}
	if p.size.each == 0 {
		return
	}
	if d.spread == nil {
		d.spread = map[spread]int64{}
	}
	of := p.spread()
	if d.spread[of] += workers; d.spread[of] == 0 {
		delete(d.spread, of)
	}
}

func (p *pending) spread() spread { return spread{p.reservation.Key, p.size.each} }

// avoids reports whether a reservation names executors that it must not use, permanently
// or for a while.
func avoids(r *model.Reservation) bool {
	return cmp.Or(len(r.Spec.Constraints.Avoid), len(r.Spec.Constraints.AvoidFailed), len(r.Failed)) > 0
}

// mayExclude reports whether workers of the reservation that have executors may exclude idle
// executors for others. A spread by executor excludes only their own executors.
func mayExclude(k constraint.Constraints) bool {
	return k.SameShape || k.Spread.Max > 0 && !k.Spread.Single()
}
