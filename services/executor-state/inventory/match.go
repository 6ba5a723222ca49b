package inventory

import (
	"container/heap"
	"math"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Best fit. A worker goes to the executor of which least is left over, where
// it hurts most: what would be left of each resource is taken as a share of
// all that is free of it in the fleet when the entry is tried, and the largest
// share counts. So a worker that only needs a processor leaves hosts with rare
// devices alone. The smallest score wins, then the newest generation, then the
// lowest id.
//
// Workers are placed one after the other. Placing one lowers its executor's
// score, so the next goes to the same executor until it takes no more: the
// matcher therefore visits executors in one order, each once, and takes from
// each what it can. The order is that of buckets, which share one score; only
// the executors that are taken are looked at.

// pick is how many workers of a batch an executor takes.
type pick struct {
	host    *host
	workers int
}

// choose picks executors for n workers. With fitting < n there are too few;
// nothing is changed either way.
func (c *Core) choose(k constraint.Constraints, n int) (picks []pick, fitting int) {
	s := search{Core: c, constraints: k, needed: n}
	s.avoided = c.avoided(k)
	candidates := s.candidates()
	if !k.SameShape {
		return s.fill(candidates)
	}
	var best *candidate
	for _, group := range byShape(candidates) {
		if len(group) == 0 {
			continue
		}
		first := first(group, k.Pack)
		opening := *first
		taken, fit := s.fill(group)
		if fit > fitting || fit == fitting && fit == n && before(&opening, best, k.Pack) {
			picks, fitting, best = taken, fit, &opening
		}
	}
	return picks, fitting
}

// search is one entry's look at the fleet.
type search struct {
	*Core
	constraints constraint.Constraints
	needed      int
	avoided     map[string]bool
}

// candidate is a bucket whose executors take a worker each at least.
type candidate struct {
	bucket *bucket
	at     cursor[*host]
	// head is the best executor of the bucket that is still to be taken.
	head  *host
	score float64
	// times is how many workers each executor takes.
	times int64
	// size is times, as far as the batch wants it; it orders with pack.
	size int64
	// domain is the value that spread counts by.
	domain string
}

// before orders candidates: with pack those that take most come first.
func before(a, b *candidate, pack bool) bool {
	if pack && a.size != b.size {
		return a.size > b.size
	}
	if a.score != b.score {
		return a.score < b.score
	}
	return compareRank(a.head, b.head) < 0
}

func first(candidates []*candidate, pack bool) *candidate {
	best := candidates[0]
	for _, candidate := range candidates[1:] {
		if before(candidate, best, pack) {
			best = candidate
		}
	}
	return best
}

func byShape(candidates []*candidate) map[string][]*candidate {
	groups := map[string][]*candidate{}
	for _, candidate := range candidates {
		shape := candidate.bucket.class.shape
		groups[shape] = append(groups[shape], candidate)
	}
	return groups
}

// candidates are the buckets that a worker fits into, in no order. They are
// valid until the next call.
func (s *search) candidates() []*candidate {
	clear(s.slab)
	s.slab = s.slab[:0]
	kind := kind(s.constraints)
	for _, class := range s.classes {
		if class.ready == 0 || !class.resources.Fits(s.constraints.Resources) {
			continue
		}
		if ok, _ := kind.Match(class.host); !ok {
			continue
		}
		need := class.need(s.constraints.Resources)
		domain := ""
		if s.spreads() {
			domain = constraint.Fold(class.host.Attribute(s.constraints.Spread.By))
		}
		for _, bucket := range class.buckets {
			times, score := bucket.fit(need)
			if times == 0 {
				continue
			}
			found := candidate{bucket: bucket, score: score, times: times, domain: domain}
			found.size = s.most(&found)
			found.at.set = &bucket.hosts
			if s.settleOn(&found) {
				s.slab = append(s.slab, found)
			}
		}
	}
	list := make([]*candidate, len(s.slab))
	for i := range s.slab {
		list[i] = &s.slab[i]
	}
	return list
}

// kind matches classes: whom to avoid is asked of each executor.
func kind(k constraint.Constraints) constraint.Matcher {
	k.Avoid = nil
	return k.Matcher()
}

// settleOn moves the candidate to its next executor that is not avoided.
func (s *search) settleOn(k *candidate) bool {
	for {
		head, ok := k.at.item()
		if !ok || !s.avoided[head.id] {
			k.head = head
			return ok
		}
		k.at.next()
	}
}

// spreads says whether the batch is spread by an attribute. Executors without
// it count as one value together.
func (s *search) spreads() bool {
	return s.constraints.Spread.Max > 0 && s.constraints.Spread.By != constraint.ByExecutor
}

// most is how many workers one of the candidate's executors may take at most,
// whatever the others have.
func (s *search) most(k *candidate) int64 {
	most := min(k.times, int64(s.needed))
	if s.constraints.Spread.Max > 0 {
		most = min(most, int64(s.constraints.Spread.Max))
	}
	return most
}

// fill takes the candidates' executors in order until the batch is placed.
func (s *search) fill(candidates []*candidate) (picks []pick, fitting int) {
	queue := &candidateHeap{candidates, s.constraints.Pack}
	heap.Init(queue)
	domains := map[string]int64{}
	for left := int64(s.needed); left > 0 && queue.Len() > 0; {
		next := queue.list[0]
		size := min(s.most(next), left)
		if s.spreads() {
			size = min(size, int64(s.constraints.Spread.Max)-domains[next.domain])
		}
		switch {
		case size == 0:
			heap.Pop(queue)
			continue
		case s.constraints.Pack && size < next.size:
			// It takes less than it was ordered by; others may now take more.
			next.size = size
			heap.Fix(queue, 0)
			continue
		}
		picks = append(picks, pick{next.head, int(size)})
		fitting += int(size)
		left -= size
		domains[next.domain] += size
		next.at.next()
		if s.settleOn(next) {
			heap.Fix(queue, 0)
		} else {
			heap.Pop(queue)
		}
	}
	return picks, fitting
}

// candidateHeap implements [heap.Interface].
type candidateHeap struct {
	list []*candidate
	pack bool
}

func (h *candidateHeap) Len() int           { return len(h.list) }
func (h *candidateHeap) Less(i, j int) bool { return before(h.list[i], h.list[j], h.pack) }
func (h *candidateHeap) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *candidateHeap) Push(x any)         { h.list = append(h.list, x.(*candidate)) }

func (h *candidateHeap) Pop() any {
	last := len(h.list) - 1
	x := h.list[last]
	h.list = h.list[:last]
	return x
}

// need answers the request in the order of the class's names, valid until the
// next use of the scratch.
func (k *class) need(request resource.Vector) []int64 {
	k.scratch = k.scratch[:0]
	for _, name := range k.names {
		k.scratch = append(k.scratch, request[name])
	}
	return k.scratch
}

// fit answers how many workers one executor of the bucket takes, and its
// score with one more.
func (b *bucket) fit(need []int64) (times int64, score float64) {
	times = math.MaxInt64
	for i, amount := range need {
		if amount > 0 {
			times = min(times, b.free[i]/amount)
		}
		if left := b.free[i] - amount; left > 0 {
			score = max(score, float64(left)/b.class.total[i].float())
		}
	}
	return times, score
}
