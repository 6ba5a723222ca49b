package match

import (
	"math"

	"berth.dev/pkg/constraint"
)

// Best fit. A worker goes to the executor on which it leaves the least of the
// scarcest resource, of equals to the one on which it leaves the least of the next
// scarcest, and so on through all that it requests: see scarce.go. Then the
// resources count that it does not request: what the executor has of each is taken
// as a share of all that is free of it in the fleet, and the smallest of the largest
// shares wins, so that of equal hosts those with rare devices are left alone. Then
// the newest generation wins, then the lowest ID.
//
// Workers are placed one after the other. Placing one lowers what its executor has
// left, so the next goes to the same executor until it takes no more: the
// matcher therefore visits executors in one order, each once, and takes from
// each what it can. First it counts, in any order, until there is room for all:
// what does not fit is found out without putting anything in order.

// Pick is how many workers of a batch an executor takes.
type Pick struct {
	Executor *Executor
	Workers  int
}

// search is one entry's look at the fleet.
type search struct {
	scan
	constraints constraint.Constraints
	needed      int64
	// most is how many workers one executor takes at most, whatever it has.
	most int64
	// spread is how many workers may share a value of an attribute, domains the
	// values; nil for a batch that is not spread by one. Executors without the
	// attribute count as one value together.
	spread  int64
	domains *column
	// number tells the search's counts in domains from others.
	number uint64
	// scarce is as scarcity returns it, once it was asked.
	scarce []string
	// taken are those picked, where the ranking begins again.
	taken map[*Executor]bool
}

func (ix *Index) search(k constraint.Constraints, n int) *search {
	s := &search{scan: ix.scan(ix.Query(k), true), constraints: k, needed: int64(n), most: int64(n), spread: math.MaxInt64}
	if k.Spread.Max > 0 {
		s.most = min(s.most, int64(k.Spread.Max))
	}
	if s.domains = s.query.section.domains; s.domains != nil {
		s.spread = int64(k.Spread.Max)
	}
	s.avoided = ix.Avoided(k, s.query)
	s.anew()
	return s
}

// choose picks executors for n workers. With fitting < n there are too few, and
// none is picked; nothing is changed either way.
func (ix *Index) choose(k constraint.Constraints, n int) (picks []Pick, fitting int) {
	s := ix.search(k, n)
	if k.SameShape {
		s.only, fitting = s.oneShape()
	} else {
		fitting = s.room()
	}
	if fitting < n {
		return nil, fitting
	}
	s.anew()
	return s.fill(), fitting
}

// fit is how many of n workers fit.
func (ix *Index) fit(k constraint.Constraints, n int) (fitting int) {
	s := ix.search(k, n)
	if k.SameShape {
		_, fitting = s.oneShape()
		return fitting
	}
	return s.room()
}

// anew begins to count domains from nothing.
func (s *search) anew() {
	s.searches++
	s.number = s.searches
}

// room is how many workers of the batch there is room for: what fill would
// place.
func (s *search) room() int {
	room, enough := int64(0), s.needed
	if s.domains != nil {
		enough = min(enough, s.spread*int64(len(s.domains.values)+1))
	}
	for a, b := range s.blocks() {
		for at := range s.fitting(a, b) {
			room += s.take(b.traits[at].class, a.times(b.point(at), s.most))
			if room >= enough {
				return int(enough)
			}
		}
	}
	return int(room)
}

// left is how many more workers may have the class's value to spread by.
func (s *search) left(class int32) int64 {
	if s.domains == nil {
		return math.MaxInt64
	}
	domain := s.domains.ofClass(class)
	if domain.search != s.number {
		domain.search, domain.taken = s.number, 0
	}
	return s.spread - domain.taken
}

// take counts up to n workers on an executor of the class, and answers how many.
func (s *search) take(class int32, n int64) int64 {
	n = min(n, s.left(class))
	if s.domains != nil {
		s.domains.ofClass(class).taken += n
	}
	return n
}

// fill takes executors in order until the batch is placed, for which there is
// room.
func (s *search) fill() (picks []Pick) {
	t := s.ranking(s.most)
	for left := s.needed; left > 0; {
		k, _ := t.first()
		class := k.executor.class.index
		most := t.times(k)
		size := min(most, left, s.left(class))
		if s.constraints.Pack && 0 < size && size < most {
			// It takes less than it was ordered by; others may now take more.
			if size == left {
				t = s.ranking(left)
			} else {
				t.pop()
				t.again(k, size)
			}
			continue
		}
		t.pop()
		if size > 0 {
			picks = append(picks, Pick{k.executor, int(size)})
			left -= s.take(class, size)
			s.picked(k.executor)
		}
	}
	return picks
}

// picked notes an executor that another ranking must leave out.
func (s *search) picked(h *Executor) {
	if !s.constraints.Pack {
		return
	}
	if s.taken == nil {
		s.taken = map[*Executor]bool{}
	}
	s.taken[h] = true
}
