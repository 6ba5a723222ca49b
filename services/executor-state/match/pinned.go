package match

import (
	"fmt"

	"berth.dev/pkg/constraint"
)

// Some workers of a batch may have their executors before the search: a worker on a volume
// runs where its volume is. The owner adds what they use to the executors, and the search
// places the other workers around them.

// pinWorkers counts the workers that have their executors already.
func (s *search) pinWorkers(pinned map[*Executor]int) {
	if len(pinned) == 0 {
		return
	}
	s.pinned = pinned
	if s.domains != nil {
		s.pinnedIn = map[*attributeValue]int64{}
	}
	for e, n := range pinned {
		if s.domains != nil {
			s.pinnedIn[s.domains.ofClass(e.class.index)] += int64(n)
		}
		if s.constraints.SameShape {
			s.only = e.shape
		}
	}
	s.restartCount()
}

// mostOn returns the maximum number of workers that the search may place on an executor,
// whatever its free capacity.
func (s *search) mostOn(e *Executor) int64 {
	if n := s.pinned[e]; n > 0 && s.constraints.Spread.Max > 0 && s.domains == nil {
		return min(s.most, max(0, int64(s.constraints.Spread.Max)-int64(n)))
	}
	return s.most
}

// fillPinned picks as many workers as possible on the executors that have workers already.
func (s *search) fillPinned() []Pick {
	s.scarcity() // of all executors, not only of these
	near := *s
	near.members, near.aligned = nil, nil
	var list []*Executor
	for e := range s.pinned {
		if e.eligibility == Eligible && s.query.hasSKU(e.shape.sku) && s.query.selection.contains(e.class.index) {
			list = append(list, e)
		}
	}
	near.group(list)
	return near.fill(s.needed)
}

// Conflict describes why workers that have their executors already cannot belong to one
// batch with the constraints; empty if they can.
func (ix *Index) Conflict(k constraint.Constraints, pinned map[*Executor]int) string {
	domains := ix.Query(k).selection.domains
	inDomain := map[*attributeValue]int{}
	var shape *Shape
	shapes := false
	for e, n := range pinned {
		if domains != nil {
			inDomain[domains.ofClass(e.class.index)] += n
			n = inDomain[domains.ofClass(e.class.index)]
		}
		if k.Spread.Max > 0 && n > int(k.Spread.Max) {
			return fmt.Sprintf("more than %d of them are in one %s", k.Spread.Max, k.Spread.By)
		}
		shapes = shapes || shape != nil && e.shape != shape
		shape = e.shape
	}
	if k.SameShape && shapes {
		return "they are on executors of different shapes"
	}
	return ""
}

// Allows reports whether a worker with the constraints may use an executor, whatever the
// executor's free capacity.
func (ix *Index) Allows(k constraint.Constraints, e *Executor) bool {
	q := ix.Query(k)
	return q.Matches(e.class.host) && !ix.named(k.Avoid)[e]
}
