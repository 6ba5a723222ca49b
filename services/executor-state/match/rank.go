package match

import (
	"container/heap"
	"slices"
)

// ranking returns the executors on which workers fit, in the order of choice. With pack,
// the executors that take the most workers come first. Then what would be left over
// decides, then the rank. The ranking opens a block only when no executor that it has
// seen precedes the best executor that the block's bounds allow.
type ranking struct {
	*search
	// most limits the number of workers that an executor is ranked by.
	most   int64
	blocks priorityQueue[*rankedBlock]
}

// rankedBlock is a block in a ranking. Until it is open, it is ranked by the best
// executor that its bounds allow. Once it is open, it is ranked by its best executor.
type rankedBlock struct {
	candidate
	aligned *alignedRequest
	block   *block
	// candidates holds the executors of the open block on which a worker fits.
	candidates priorityQueue[candidate]
	open       bool
}

// candidate is an executor on which a worker fits.
type candidate struct {
	executor *Executor
	// at is the executor's place in the block.
	at int
	// size is how many workers the executor takes; 0 without pack. left is what one more
	// worker would leave of each requested resource, the scarcest first. score is the score
	// of the other resources; see alignedRequest.score.
	size  int64
	left  []int64
	score float64
}

// fitsBetter compares candidates without their rank.
func (a *candidate) fitsBetter(b *candidate) (better, equal bool) {
	if a.size != b.size {
		return a.size > b.size, false
	}
	if order := slices.Compare(a.left, b.left); order != 0 {
		return order < 0, false
	}
	return a.score < b.score, a.score == b.score
}

// inBlockOrder orders the candidates of a block. The executors of a block are in order of
// rank.
func inBlockOrder(a, b *candidate) bool {
	better, equal := a.fitsBetter(b)
	return better || equal && a.at < b.at
}

func blockOrder(a, b **rankedBlock) bool {
	better, equal := (*a).fitsBetter(&(*b).candidate)
	return better || equal && Compare((*a).executor, (*b).executor) < 0
}

func (s *search) ranking(most int64) *ranking {
	t := &ranking{search: s, most: most, blocks: priorityQueue[*rankedBlock]{before: blockOrder}}
	t.candidates, t.rankedBlocks, t.leftovers = t.candidates[:0], t.rankedBlocks[:0], t.leftovers[:0]
	scarce := s.scarcity()
	for _, a := range s.aligned {
		a.rank(scarce)
	}
	for a, b := range s.blocks() {
		best := candidate{executor: b.executors[0], size: t.size(a, b.high, t.most), left: t.leftover(a, b.low),
			score: a.score(b.low)}
		t.rankedBlocks = append(t.rankedBlocks, rankedBlock{aligned: a, block: b, candidate: best})
	}
	t.blocks.items = make([]*rankedBlock, len(t.rankedBlocks))
	for i := range t.rankedBlocks {
		t.blocks.items[i] = &t.rankedBlocks[i]
	}
	heap.Init(&t.blocks)
	return t
}

// leftover returns what one more worker leaves at the point.
func (t *ranking) leftover(a *alignedRequest, point []int64) []int64 {
	from := len(t.leftovers)
	t.leftovers = a.leftover(t.leftovers, point)
	return t.leftovers[from:len(t.leftovers):len(t.leftovers)]
}

// size returns the number of workers that an executor at the point is ranked by, at most
// most.
func (t *ranking) size(a *alignedRequest, point []int64, most int64) int64 {
	if t.constraints.Pack {
		return a.times(point, most)
	}
	return 0
}

// times returns how many workers the first executor of the ranking takes.
func (t *ranking) times(first candidate) int64 {
	if t.constraints.Pack {
		return first.size
	}
	return t.blocks.items[0].aligned.times(first.executor.free, t.mostOf(first.executor))
}

// mostOf returns the maximum number of workers by which the ranking ranks an executor.
func (t *ranking) mostOf(e *Executor) int64 { return min(t.most, t.mostOn(e)) }

// first returns the next executor; false if there is none.
func (t *ranking) first() (candidate, bool) {
	for len(t.blocks.items) > 0 {
		k := t.blocks.items[0]
		if k.open {
			return k.candidate, true
		}
		t.open(k)
		t.fixFirst()
	}
	return candidate{}, false
}

// open collects the executors of a block on which a worker fits.
func (t *ranking) open(k *rankedBlock) {
	k.open = true
	from := len(t.candidates)
	for at := range t.fitting(k.aligned, k.block) {
		if e := k.block.executors[at]; !t.picked[e] {
			point := k.block.point(at)
			t.candidates = append(t.candidates, candidate{e, at, t.size(k.aligned, point, t.mostOf(e)),
				t.leftover(k.aligned, point), k.aligned.score(point)})
		}
	}
	end := len(t.candidates)
	k.candidates = priorityQueue[candidate]{t.candidates[from:end:end], inBlockOrder}
	heap.Init(&k.candidates)
}

// fixFirst moves the first block to the place of its best candidate.
func (t *ranking) fixFirst() {
	k := t.blocks.items[0]
	if len(k.candidates.items) == 0 {
		heap.Pop(&t.blocks)
		return
	}
	k.candidate = k.candidates.items[0]
	heap.Fix(&t.blocks, 0)
}

// pop removes the first executor from the ranking.
func (t *ranking) pop() {
	t.Work++
	heap.Pop(&t.blocks.items[0].candidates)
	t.fixFirst()
}

// reinsert adds a candidate again, ranked by a lower size.
func (t *ranking) reinsert(k candidate, size int64) {
	k.size = size
	heap.Push(&t.blocks, &rankedBlock{candidate: k, open: true,
		candidates: priorityQueue[candidate]{[]candidate{k}, inBlockOrder}})
}

// priorityQueue implements heap.Interface. The item that is before all others is first.
type priorityQueue[T any] struct {
	items  []T
	before func(a, b *T) bool
}

func (q *priorityQueue[T]) Len() int           { return len(q.items) }
func (q *priorityQueue[T]) Less(i, j int) bool { return q.before(&q.items[i], &q.items[j]) }
func (q *priorityQueue[T]) Swap(i, j int)      { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *priorityQueue[T]) Push(item any)      { q.items = append(q.items, item.(T)) }

// Pop returns nil, since an item would cost an allocation. Callers read the first item
// before they remove it.
func (q *priorityQueue[T]) Pop() any {
	q.items = q.items[:len(q.items)-1]
	return nil
}
