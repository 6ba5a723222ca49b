package usage

import (
	"math"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/resource"
	"berth.dev/services/executor-state/match"
)

// exclusions counts the demand of one SKU that avoids some executors of the SKU. A
// reservation cannot use an idle executor that it avoids, or that spread or sameShape exclude
// because of its workers that have executors. So it needs the executors that its workers
// fill, and in addition as many executors as it avoids.
//
// Any part of a SKU's demand needs at least the executors that its workers fill, and the
// idle executors that no reservation of the part may use. Two kinds of parts are counted:
// the reservations that avoid the same set of idle executors, and the reservations that
// avoid one idle executor. If few executors of a fleet fail, these parts need the most.
type exclusions map[string]*exclusion

// exclusion is a part of a SKU's demand.
type exclusion struct {
	// idle counts the idle executors that every reservation of the part avoids.
	idle int64
	// groups holds the groups of demand in the part.
	groups map[*demand]*packing
}

// packing is the workers of one group, packed onto executors of one shape.
type packing struct {
	// each is how many workers fit on an executor. most is the number of executors that the
	// most widely spread reservation needs. spread counts the workers of such reservations.
	each, workers, most int64
	spread              map[spread]int64
}

// add adds a version of a reservation. The versions of one reservation spread together.
func (x *packing) add(p *pending) {
	x.workers += int64(p.size.workers)
	if p.size.each == 0 {
		return
	}
	if x.spread == nil {
		x.spread = map[spread]int64{}
	}
	of := p.spread()
	x.spread[of] += int64(p.size.workers)
	x.widen(of, x.spread[of])
}

// widen counts the executors that the workers of a reservation with a spread need.
func (x *packing) widen(of spread, workers int64) {
	x.most = max(x.most, ceil(workers, min(x.each, int64(of.each))))
}

func (x *packing) executors() int64 { return max(ceil(x.workers, x.each), x.most) }

// usageWork limits the work for counting exclusions in one answer. The unit is an entry
// of a list, or an executor that is looked at. Further exclusions are not counted.
const usageWork = 1 << 22

// exclude counts the executors that the reservations of a group avoid, until work is used
// up. shape is what an idle executor of the SKU has for the group's workers.
func (x exclusions) exclude(t *Tally, now time.Time, d *demand, q *match.Query, of *sku, shape resource.Vector,
	work *int) {
	ix := t.index
	each := timesEach(shape, d.constraints.Resources)
	var uids []string
	for uid, p := range d.avoiding {
		if avoids(p.reservation) || t.pinned(p.reservation) != nil {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	*work -= len(d.avoiding)
	for _, uid := range uids {
		if *work <= 0 {
			return
		}
		pending := d.avoiding[uid]
		k := pending.reservation.ConstraintsAt(now)
		before := ix.Work
		var names []string
		for e := range ix.Excluded(k, t.pinned(pending.reservation)) {
			if e.Idle() && e.Shape().SKU() == of.folded && q.Fits(e.Shape()) && q.Matches(e.Class().Host()) {
				names = append(names, e.ID)
			}
		}
		*work -= ix.Work - before + len(k.Avoid) + len(k.AvoidFailed) + len(names)
		slices.Sort(names)
		if len(names) > 1 {
			x.add(strings.Join(names, ","), len(names), d, each, pending)
		}
		for _, name := range names {
			x.add(name, 1, d, each, pending)
		}
	}
}

func (x exclusions) add(part string, avoided int, d *demand, each int64, p *pending) {
	if x[part] == nil {
		x[part] = &exclusion{idle: int64(avoided), groups: map[*demand]*packing{}}
	}
	if x[part].groups[d] == nil {
		x[part].groups[d] = &packing{each: each}
	}
	x[part].groups[d].add(p)
}

// executors returns how many executors of the SKU the part with the greatest need
// requires, including the executors that the part avoids; 0 if there is no part.
func (x exclusions) executors() (most int64) {
	for _, part := range x {
		need := part.idle
		for _, p := range part.groups {
			need += p.executors()
		}
		most = max(most, need)
	}
	return most
}

// timesEach returns how many workers fit on an executor of a shape, at least 1. If a
// worker requests no resources, any number fits, and the result is the largest int32.
func timesEach(shape, resources resource.Vector) int64 {
	return max(1, min(shape.Times(resources), math.MaxInt32))
}
