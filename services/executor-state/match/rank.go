package match

import "slices"

// ranking gives the executors that workers fit on in the order of choice: with pack
// those first that take most, then by what is left over, then by rank. It looks into a block
// when nothing that it has seen so far comes before the best that could be in it.
type ranking struct {
	*search
	// most is how many workers an executor is ordered by at most.
	most   int64
	blocks heap[*rankedBlock]
}

// rankedBlock is a block in a ranking, by the best that it could have and, once it was
// looked into, by the best that it has.
type rankedBlock struct {
	candidate
	aim   *aim
	block *block
	// list are its candidates, once they are looked for.
	list   heap[candidate]
	opened bool
}

// candidate is an executor that takes a worker at least.
type candidate struct {
	executor *Executor
	// at is its place in the block.
	at int
	// size is how many workers it takes, if it is ordered by that. Left is what one
	// more would leave of each requested resource, the scarcest first, and score
	// what it has of the others.
	size  int64
	left  []int64
	score float64
}

// fitsBetter orders candidates but for their rank.
func (a *candidate) fitsBetter(b *candidate) (better, equal bool) {
	if a.size != b.size {
		return a.size > b.size, false
	}
	if order := slices.Compare(a.left, b.left); order != 0 {
		return order < 0, false
	}
	return a.score < b.score, a.score == b.score
}

// before orders those of one block, which are in order of rank.
func before(a, b candidate) bool {
	better, equal := a.fitsBetter(&b)
	return better || equal && a.at < b.at
}

func comesFirst(a, b *rankedBlock) bool {
	better, equal := a.fitsBetter(&b.candidate)
	return better || equal && Compare(a.executor, b.executor) < 0
}

func (s *search) ranking(most int64) *ranking {
	t := &ranking{search: s, most: most, blocks: heap[*rankedBlock]{before: comesFirst}}
	t.candidates, t.visited, t.lefts = t.candidates[:0], t.visited[:0], t.lefts[:0]
	scarce := s.scarcity()
	for _, a := range s.aims {
		a.weigh(scarce)
	}
	for a, b := range s.blocks() {
		best := candidate{executor: b.executors[0], size: t.size(a, b.high), left: t.leftover(a, b.low), score: a.score(b.low)}
		t.visited = append(t.visited, rankedBlock{aim: a, block: b, candidate: best})
	}
	t.blocks.list = t.order[:0]
	for i := range t.visited {
		t.blocks.list = append(t.blocks.list, &t.visited[i])
	}
	t.order = t.blocks.list
	t.blocks.init()
	return t
}

// leftover is what one worker more leaves at the point.
func (t *ranking) leftover(a *aim, point []int64) []int64 {
	from := len(t.lefts)
	t.lefts = a.leftover(t.lefts, point)
	return t.lefts[from:len(t.lefts):len(t.lefts)]
}

// size is how many workers executors with so much are ordered by: with pack alone
// does it matter.
func (t *ranking) size(a *aim, point []int64) int64 {
	if t.constraints.Pack {
		return a.times(point, t.most)
	}
	return 0
}

// times is how many workers the first executor takes.
func (t *ranking) times(first candidate) int64 {
	if t.constraints.Pack {
		return first.size
	}
	return t.blocks.list[0].aim.times(first.executor.free, t.most)
}

// first answers the next executor; false at the end.
func (t *ranking) first() (candidate, bool) {
	for len(t.blocks.list) > 0 {
		k := t.blocks.list[0]
		if k.opened {
			return k.candidate, true
		}
		t.open(k)
		t.settle()
	}
	return candidate{}, false
}

// open looks into a block.
func (t *ranking) open(k *rankedBlock) {
	k.opened = true
	from := len(t.candidates)
	for at := range t.fitting(k.aim, k.block) {
		if h := k.block.executors[at]; !t.taken[h] {
			point := k.block.point(at)
			t.candidates = append(t.candidates, candidate{h, at, t.size(k.aim, point), t.leftover(k.aim, point), k.aim.score(point)})
		}
	}
	end := len(t.candidates)
	k.list = heap[candidate]{t.candidates[from:end:end], before}
	k.list.init()
}

// settle moves the first block to where its best candidate belongs.
func (t *ranking) settle() {
	k := t.blocks.list[0]
	if len(k.list.list) == 0 {
		t.blocks.pop()
		return
	}
	k.candidate = k.list.list[0]
	t.blocks.down(0)
}

// pop moves on to the one after the first.
func (t *ranking) pop() {
	t.Spent++
	t.blocks.list[0].list.pop()
	t.settle()
}

// again gives a candidate once more, ordered by a lower size.
func (t *ranking) again(k candidate, size int64) {
	k.size = size
	t.blocks.push(&rankedBlock{candidate: k, opened: true, list: heap[candidate]{[]candidate{k}, before}})
}
