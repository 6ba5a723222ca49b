package inventory

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// demand is the reservations of one group that wait: QUEUED, without a lease
// and not handed over.
type demand struct {
	// text is the canonical constraints; constraints are those of the first
	// that waited, without the wishes that groups leave out.
	text        string
	constraints constraint.Constraints
	// batches counts the reservations by size.
	batches      map[size]int
	reservations int
	workers      int64
	// avoiding are those that avoid executors, by uid.
	avoiding map[string]*awaited
}

// size is what of a batch tells how many executors it needs: its workers, and
// at most how many of them one executor may take, 0 for no limit.
type size struct {
	workers int
	each    int32
}

// awaited is a waiting reservation as it was counted.
type awaited struct {
	record model.Record
	demand *demand
	size   size
}

// await counts a reservation among those that wait, or not, as the records now
// say.
func (c *Core) await(uid string) {
	var record model.Record
	if r := c.reservations[uid]; r != nil && c.leases[uid] == nil && !c.handedOver(uid) {
		if r.record.(*model.Reservation).State == model.Queued {
			record = r.record
		}
	}
	was := c.awaited[uid]
	if was == nil && record == nil || was != nil && was.record == record {
		return
	}
	if was != nil {
		was.demand.count(was.size, -1)
		delete(was.demand.avoiding, uid)
		if was.demand.reservations == 0 {
			delete(c.demand, was.demand.text)
		}
		delete(c.awaited, uid)
	}
	if record == nil {
		return
	}
	r := record.(*model.Reservation)
	is := &awaited{record: record, demand: c.demandOf(r.Spec.Constraints), size: size{workers: r.Workers.Len()}}
	if spread := r.Spec.Constraints.Spread; spread.Single() {
		is.size.each = spread.Max
	}
	is.demand.count(is.size, 1)
	if avoids(r) {
		is.demand.avoiding[uid] = is
	}
	c.awaited[uid] = is
}

func (c *Core) demandOf(k constraint.Constraints) *demand {
	text := k.Canonical()
	d := c.demand[text]
	if d == nil {
		k.SameShape, k.Spread, k.Pack, k.Avoid, k.AvoidFailed = false, constraint.Spread{}, false, nil, nil
		d = &demand{text: text, constraints: k, batches: map[size]int{}, avoiding: map[string]*awaited{}}
		c.demand[text] = d
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
