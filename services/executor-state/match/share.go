package match

import (
	"math/bits"

	"berth.dev/pkg/constraint"
)

// Left returns which share of the scarcest requested resource is left on the eligible executors
// that match once more workers use theirs, 0 to 1. Executors without free capacity count too. The
// cost is linear in the number of shapes, or for constraints with attributes or pools in the
// number of executors that they select.
func (ix *Index) Left(k constraint.Constraints, workers int) float64 {
	q := ix.Query(k)
	free, capacity := q.newFreeSums(), q.newFreeSums()
	if q.selection.wholeFleet() {
		for _, sku := range ix.skus {
			if q.hasSKU(sku) {
				sku.addUp(free, capacity)
			}
		}
	} else {
		for _, class := range ix.classes {
			if q.selection.contains(class.index) {
				ix.Work += len(class.executors)
				q.addUp(class, free, capacity)
			}
		}
	}
	left := 1.0
	for name, total := range capacity {
		if all := total.float(); all > 0 {
			left = min(left, (free[name].float()-float64(workers)*float64(q.resources[name]))/all)
		}
	}
	return max(left, 0)
}

// addUp adds what is free on the eligible executors of the SKU, and what they have.
func (s *SKU) addUp(free, capacity freeSums) {
	for name, sum := range free {
		if of := s.free[name]; of != nil {
			sum.addSum(*of)
		}
	}
	for _, shape := range s.shapes {
		for i, name := range shape.layout.names {
			if total := capacity[name]; total != nil {
				high, low := bits.Mul64(uint64(shape.capacity[i]), uint64(shape.counts[Eligible]))
				total.addSum(sum{high, low})
			}
		}
	}
}

// addUp adds what is free on the eligible executors of the class that the query allows, and what
// they have.
func (q *Query) addUp(class *Class, free, capacity freeSums) {
	for _, e := range class.executors {
		if e.eligibility != Eligible || !q.hasSKU(e.shape.sku) {
			continue
		}
		for i, name := range e.shape.layout.names {
			if total := capacity[name]; total != nil {
				total.add(e.shape.capacity[i])
				free[name].add(e.free[i])
			}
		}
	}
}
