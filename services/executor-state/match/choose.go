package match

import (
	"math"

	"berth.dev/pkg/constraint"
)

// Best fit. With pack, a worker goes to the executor that takes the most workers of the
// batch, and the criteria below decide only between executors that take equally many.
// Without pack, they decide alone.
//
// The first criterion is the scarcest requested resource: a worker goes to the executor
// on which it leaves the least of that resource. Then the next scarcest resource decides,
// and so on; see scarce.go. The next criterion is the resources that the worker does not
// request. Each amount of such a resource on the executor counts as a share of the
// fleet's free amount. The executor whose largest share is the smallest wins, so hosts
// without rare devices are used first. Then the newest generation wins, then the lowest
// ID.
//
// Workers are placed one after the other. Each worker reduces what its executor has left,
// so the next worker goes to the same executor until no more fit. The search therefore
// visits each executor once, in one order, and places as many workers there as fit.
// Before that, the search counts the free capacity in any order until it suffices for all
// workers, so a refusal sorts nothing.

// Pick is an executor and how many workers of a batch it takes.
type Pick struct {
	Executor *Executor
	Workers  int
}

// search is the search for the executors of one batch.
type search struct {
	scan
	constraints constraint.Constraints
	needed      int64
	// most is the maximum number of workers on one executor, whatever its free capacity.
	most int64
	// pins has the maximum number of workers in one domain, and the workers that have their
	// executors already. A domain is the executors with one value of the attribute to spread by,
	// or all executors without the attribute.
	pins
	// number identifies the current count of workers in domains and on shapes.
	number uint64
	// scarce is the result of scarcity; nil before the first call.
	scarce []string
	// picked holds the executors that a new ranking must leave out.
	picked map[*Executor]bool
}

// search returns the search for n workers in addition to those that have their executors
// already, which pinned counts by executor.
func (ix *Index) search(k constraint.Constraints, n int, pinned map[*Executor]int) *search {
	s := &search{
		scan: ix.scan(ix.Query(k), true), constraints: k, needed: int64(n), most: int64(n),
		picked: map[*Executor]bool{},
	}
	s.pins = ix.pins(k, s.query, pinned)
	s.most = min(s.most, s.spread)
	s.only = s.shape
	s.avoided = ix.Avoided(k, s.query, &s.pins)
	s.restartCount()
	return s
}

// choose picks executors for all workers. If fewer fit, it picks none.
func (s *search) choose() (picks []Pick, fitting int) {
	fitting = s.fit()
	if int64(fitting) < s.needed {
		return nil, fitting
	}
	s.restartCount()
	if len(s.pinned) == 0 || !s.constraints.Pack {
		return s.fill(s.needed), fitting
	}
	picks = s.fillPinned()
	left := s.needed
	for _, p := range picks {
		left -= int64(p.Workers)
	}
	return append(picks, s.fill(left)...), fitting
}

// fit returns how many of the workers fit. With sameShape it restricts the scan to the
// chosen shape.
func (s *search) fit() (fitting int) {
	if s.constraints.SameShape && s.only == nil {
		s.only, fitting = s.oneShape()
		return fitting
	}
	return s.freeCapacity()
}

// restartCount sets the count of workers in each domain and on each shape to 0.
func (s *search) restartCount() {
	s.searches++
	s.number = s.searches
}

// freeCapacity returns how many of the workers fill would place.
func (s *search) freeCapacity() int {
	free, enough := int64(0), s.needed
	if s.domains != nil {
		enough = min(enough, s.spread*int64(len(s.domains.values)+1))
	}
	for a, b := range s.blocks() {
		for at := range s.fitting(a, b) {
			free += s.place(b.traits[at].class, a.times(b.point(at), s.mostOn(b.executors[at])))
			if free >= enough {
				return int(enough)
			}
		}
	}
	return int(free)
}

// domainLeft returns how many more workers may run in the domain of a class.
func (s *search) domainLeft(class int32) int64 {
	if s.domains == nil {
		return math.MaxInt64
	}
	domain := s.domains.ofClass(class)
	if domain.search != s.number {
		domain.search, domain.placed = s.number, s.pinnedIn[domain]
	}
	return max(0, s.spread-domain.placed)
}

// place counts up to n workers in the domain of a class, and returns how many it counted.
func (s *search) place(class int32, n int64) int64 {
	n = min(n, s.domainLeft(class))
	if s.domains != nil {
		s.domains.ofClass(class).placed += n
	}
	return n
}

// fill picks executors in order until all workers are placed, or until no executor is left.
func (s *search) fill(workers int64) (picks []Pick) {
	t := s.ranking(s.most)
	for left := workers; left > 0; {
		k, ok := t.first()
		if !ok {
			break
		}
		class := k.executor.class.index
		most := t.times(k)
		size := min(most, left, s.domainLeft(class))
		if s.constraints.Pack && 0 < size && size < most {
			// The executor takes fewer workers than its rank assumes, so others may precede it.
			if size == left {
				t = s.ranking(left)
			} else {
				t.pop()
				t.reinsert(k, size)
			}
			continue
		}
		t.pop()
		if size > 0 {
			picks = append(picks, Pick{k.executor, int(size)})
			left -= s.place(class, size)
			if s.constraints.Pack {
				s.picked[k.executor] = true
			}
		}
	}
	return picks
}
