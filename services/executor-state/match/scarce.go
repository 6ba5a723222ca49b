package match

import (
	"cmp"
	"slices"

	"berth.dev/pkg/resource"
)

// The scarcest resource of a request is the requested resource that would run out first
// if more such workers came: the one whose free amount is the smallest in proportion to
// the request. The free amounts are summed over the matching executors. An executor
// matches if a worker fits on it now. The sums are computed once for each candidate, when
// its executors are first ranked. Placing its workers does not change the order of
// resources. So the executors of a gang depend only on the inventory before the gang.

// ByScarcity returns the resources that a worker requests, the scarcest first. Equally
// scarce resources are in order of name. free returns how much of a resource is free.
func ByScarcity(request resource.Vector, free func(name string) float64) []string {
	names := slices.DeleteFunc(request.Names(), func(name string) bool { return request[name] <= 0 })
	if len(names) < 2 {
		return names
	}
	ratios := make(map[string]float64, len(names))
	for _, name := range names {
		ratios[name] = free(name) / float64(request[name])
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(ratios[a], ratios[b]) })
	return names
}

// scarcity returns the requested resources, the scarcest first. Later calls return the
// result of the first call.
func (s *search) scarcity() []string {
	if s.scarce == nil {
		var free freeSums
		s.scarce = ByScarcity(s.query.resources, func(name string) float64 {
			if free == nil {
				free = s.freeOfMatching()
			}
			return free[name].float()
		})
	}
	return s.scarce
}

// freeSums holds, for each requested resource, the sum of what is free on the executors
// on which a worker fits.
type freeSums map[string]*sum

func (q *Query) newFreeSums() freeSums {
	free := freeSums{}
	for name, amount := range q.resources {
		if amount > 0 {
			free[name] = &sum{}
		}
	}
	return free
}

// counter adds executors of one layout to sums.
type counter struct {
	*alignedRequest
	// sums are in the order of the layout; nil for resources that are not requested.
	sums []*sum
}

func (f freeSums) counter(a *alignedRequest) *counter {
	c := &counter{alignedRequest: a, sums: make([]*sum, len(a.need))}
	for i, name := range a.layout.names {
		c.sums[i] = f[name]
	}
	return c
}

// add adds what is free at the point of an executor on which a worker fits, multiplied by
// sign.
func (c *counter) add(point []int64, sign int64) {
	for i, sum := range c.sums {
		if sum != nil {
			sum.add(sign * c.free(point, i))
		}
	}
}

// freeOfMatching returns the sums for the search, without the executors that it avoids.
func (s *search) freeOfMatching() freeSums {
	w := s.scan
	w.avoided = nil
	free := w.freeOfSelection()
	if len(s.avoided) == 0 {
		return free
	}
	rest := s.query.newFreeSums()
	for name := range rest {
		*rest[name] = *free[name]
	}
	for e := range s.avoided {
		if e.eligibility != Eligible || !s.query.hasSKU(e.shape.sku) || !s.query.selection.contains(e.class.index) {
			continue
		}
		for _, a := range w.aligned {
			if a.layout == e.shape.layout && a.fits(e.free) {
				rest.counter(a).add(e.free, -1)
			}
		}
	}
	return rest
}

// freeOfSelection returns the sums over all executors that the query allows. For a
// selection that is neither narrow nor the whole fleet, the query keeps the sums, and
// freeOfSelection applies the moves since. So a search does not look at all executors of
// the selection.
func (w *scan) freeOfSelection() freeSums {
	q := w.query
	if w.members != nil || len(w.aligned) == 0 || q.selection.wholeFleet() {
		return w.addUp()
	}
	if q.free != nil && q.freeVersion == w.kindVersion && w.moves.covers(q.freeMoves) {
		w.applyMoves()
	} else {
		q.free, q.freeVersion, q.counters = w.addUp(), w.kindVersion, map[*layout]*counter{}
	}
	q.freeMoves = w.moves.next()
	return q.free
}

// addUp returns the sums of what is free on all executors on which a worker fits. If a
// worker fits on all executors of a block, it adds the sums of the block.
func (w *scan) addUp() freeSums {
	free := w.query.newFreeSums()
	var c *counter
	for a, b := range w.blocks() {
		if c == nil || c.alignedRequest != a {
			c = free.counter(a)
		}
		if !w.fitsAll(a, b) {
			for at := range w.fitting(a, b) {
				c.add(b.point(at), 1)
			}
			continue
		}
		for i, sum := range c.sums {
			if sum != nil {
				sum.addSum(b.sums[i])
				if a.share > 0 {
					sum.addSum(b.sums[a.share*len(a.need)+i])
				}
			}
		}
	}
	return free
}

// fitsAll reports whether the query allows every executor of a block and a worker fits on
// each of them, as far as the bounds show.
func (w *scan) fitsAll(a *alignedRequest, b *block) bool {
	return b.sums != nil && w.closed == nil && w.query.selection.wholeFleet() && (w.sku == 0 || b.lowSKU == b.highSKU) &&
		a.fits(b.low)
}

// applyMoves applies the moves since freeMoves to the sums of the query. The class
// indexes and layouts in these moves are current, because no executor has changed its
// kind since.
func (w *scan) applyMoves() {
	q := w.query
	moves := w.moves.since(q.freeMoves)
	w.Work += workOfChange * len(moves)
	for _, m := range moves {
		if !q.selection.contains(m.class) || w.sku != 0 && m.sku != w.sku {
			continue
		}
		c, known := q.counters[m.layout]
		if !known {
			if a := w.align(m.layout, q); a != nil {
				c = q.free.counter(a)
			}
			q.counters[m.layout] = c
		}
		switch {
		case c == nil || !c.fits(m.point):
		case m.in:
			c.add(m.point, 1)
		default:
			c.add(m.point, -1)
		}
	}
}
