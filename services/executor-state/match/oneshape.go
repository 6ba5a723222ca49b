package match

import "slices"

// shapeCapacity is what a search knows of the free capacity of one shape for a batch.
type shapeCapacity struct {
	// search is the number of the count; the capacity of another count is outdated.
	search uint64
	// workers is how many workers fit on the executors that were looked at, at most all
	// workers of the batch. bound is an upper bound for all executors of the shape.
	workers, bound int64
	// looked counts the executors of the shape that were looked at and on which a worker
	// fits.
	looked int
}

// oneShape returns the shape for all workers of a batch. Of the shapes that take all
// workers, it returns the shape of the best executor. If no shape takes all, it returns
// nil and the most workers that one shape takes.
//
// A shape that takes more workers than the best shape so far has an executor that takes
// more than an equal part. The first pass skips the blocks whose bounds allow no such
// executor, even for the shape with the most executors. If the skipped blocks may still
// raise the best result, the second pass looks at them, for the shapes that the first
// pass found.
func (s *search) oneShape() (only *Shape, fitting int) {
	if likely := s.likelyShape(); likely != nil {
		return likely, int(s.needed)
	}
	s.restartCount()
	best := int64(0)
	placed := map[shapeDomain]int64{}
	count := func(a *alignedRequest, b *block, at int) {
		shape := b.shapes[at]
		free := &shape.freeCapacity
		if free.looked++; free.workers >= s.needed {
			return
		}
		n := a.times(b.point(at), s.most)
		if s.domains != nil {
			key := shapeDomain{shape, s.domains.ofClass(b.traits[at].class)}
			n = min(n, s.spread-placed[key])
			placed[key] += n
		}
		free.workers = min(free.workers+n, s.needed)
		best = max(best, free.workers)
	}
	type skippedBlock struct {
		*alignedRequest
		*block
	}
	var skipped []skippedBlock
	var found []*Shape
	for a, b := range s.blocks() {
		if int64(s.shapes.mostEligible)*a.times(b.high, s.most) < min(best+1, s.needed) {
			skipped = append(skipped, skippedBlock{a, b})
			continue
		}
		for at := range s.fitting(a, b) {
			if shape := b.shapes[at]; shape.freeCapacity.search != s.number {
				bound := int64(shape.counts[Eligible]) * a.times(shape.idle, s.most)
				shape.freeCapacity = shapeCapacity{search: s.number, bound: bound}
				found = append(found, shape)
			}
			count(a, b, at)
		}
	}
	if len(skipped) > 0 && s.mayHaveMore(found, best) {
		for _, k := range skipped {
			for at := range s.fitting(k.alignedRequest, k.block) {
				if k.shapes[at].freeCapacity.search == s.number {
					count(k.alignedRequest, k.block, at)
				}
			}
		}
	}
	if best < s.needed {
		return nil, int(best)
	}
	t := s.ranking(s.most)
	for {
		k, _ := t.first()
		if free := &k.executor.shape.freeCapacity; free.search == s.number && free.workers >= s.needed {
			return k.executor.shape, int(s.needed)
		}
		t.pop()
	}
}

// mayHaveMore reports whether executors that were not looked at may raise a shape to all
// workers of the batch, or above best.
func (s *search) mayHaveMore(found []*Shape, best int64) bool {
	return slices.ContainsFunc(found, func(shape *Shape) bool {
		free := &shape.freeCapacity
		return free.workers < s.needed && free.bound >= min(best+1, s.needed) && free.looked < shape.counts[Eligible]
	})
}

// These limit the executors, and the shapes of these executors, that likelyShape tries.
const (
	likelyExecutors = 256
	likelyShapes    = 4
)

// likelyShape returns the result of oneShape if that is the shape of one of the best
// executors. Usually it is the shape of the best executor. Then oneShape need not look at
// all executors.
func (s *search) likelyShape() *Shape {
	if int64(s.shapes.mostEligible) < s.needed {
		return nil // few shapes would take the batch, so the trials would fail
	}
	small := map[*Shape]bool{}
	t := s.ranking(s.most)
	for range likelyExecutors {
		k, ok := t.first()
		if !ok {
			return nil
		}
		if only := k.executor.shape; !small[only] {
			s.only = only
			s.restartCount()
			free := s.freeCapacity()
			s.only = nil
			if int64(free) == s.needed {
				return only
			}
			if small[only] = true; len(small) == likelyShapes {
				return nil
			}
		}
		t.pop()
	}
	return nil
}

type shapeDomain struct {
	shape  *Shape
	domain *attributeValue
}
