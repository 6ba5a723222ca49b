package match

import (
	"fmt"

	"berth.dev/pkg/constraint"
)

// IfEmpty describes how many workers of a batch the fleet could hold if it were empty, if these are
// fewer than needed; otherwise it returns an empty text. others counts by executor the workers of the
// reservation that have their executors already: they stay where they are.
//
// Executors that are not LOST belong to the fleet, also if they are drained or disabled, because they
// may return. If the batch needs such executors, the text says so. Executors that the request avoids
// and cells do not count.
func (ix *Index) IfEmpty(k constraint.Constraints, needed int, others map[*Executor]int) string {
	usable := ix.holds(k, needed, others, true)
	if usable >= needed {
		return ""
	}
	if all := ix.holds(k, needed, others, false); all < needed {
		return "the fleet, if it were empty, could hold " + numberOf(all, needed, others)
	}
	if usable == 0 && len(others) == 0 {
		return "no executor that could hold a worker may be given work now"
	}
	return "the executors that may be given work, if they were empty, could hold " + numberOf(usable, needed, others)
}

// numberOf describes how many of the needed workers fit in addition to others.
func numberOf(n, needed int, others map[*Executor]int) string {
	workers := "workers"
	if needed == 1 {
		workers = "worker"
	}
	text := fmt.Sprintf("%d of %d %s", n, needed, workers)
	placed := 0
	for _, on := range others {
		placed += on
	}
	if placed > 0 {
		text += fmt.Sprintf(" in addition to the %d of the reservation that have executors", placed)
	}
	return text
}

// holds returns how many of the needed workers fit on idle executors: on all that are not LOST, or only on
// those that may be given work.
func (ix *Index) holds(k constraint.Constraints, needed int, others map[*Executor]int, usable bool) int {
	s := &search{scan: ix.scan(ix.Query(k), false), constraints: k, needed: int64(needed)}
	s.pins = ix.pins(k, s.query, others)
	s.most = min(s.needed, s.spread)
	s.only, s.avoided = s.shape, ix.named(k.Avoid)
	s.restartCount()
	sum := &sums{search: s}
	for a, b := range s.blocks() {
		for at := range s.fitting(a, b) {
			e := b.executors[at]
			switch {
			case e.cell, e.eligibility == Lost, usable && e.eligibility != Eligible && e.eligibility != Overcommitted:
				continue
			}
			on := int64(others[e])
			sum.add(e, min(a.times(b.point(at), s.needed+on)-on, s.mostOn(e)))
			if sum.most() >= s.needed {
				return needed
			}
		}
	}
	return int(sum.most())
}

// sums counts the workers that fit together: on all executors, or with sameShape on those of each shape.
type sums struct {
	*search
	all    int64
	shapes map[*Shape]int64
	placed map[shapeDomain]int64
	best   *Shape
}

// add counts up to n workers on an executor.
func (s *sums) add(e *Executor, n int64) {
	switch {
	case n <= 0:
	case !s.constraints.SameShape || s.only != nil:
		s.all += s.place(e.class.index, n)
	default:
		if s.shapes == nil {
			s.shapes, s.placed = map[*Shape]int64{}, map[shapeDomain]int64{}
		}
		if s.domains != nil {
			in := shapeDomain{e.shape, s.domains.ofClass(e.class.index)}
			n = min(n, s.spread-s.placed[in])
			s.placed[in] += n
		}
		s.shapes[e.shape] += n
		if s.best == nil || s.shapes[e.shape] > s.shapes[s.best] {
			s.best = e.shape
		}
	}
}

// most returns how many workers fit.
func (s *sums) most() int64 {
	if s.best == nil {
		return s.all
	}
	return s.shapes[s.best]
}
