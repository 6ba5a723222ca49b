package inventory

import "slices"

// tour gives the executors that workers fit on in the order of choice: with pack
// those first that take most, then by what is left over, then by rank. It looks into a block
// when nothing that it has seen so far comes before the best that could be in it.
type tour struct {
	*search
	// most is how many workers an executor is ordered by at most.
	most  int64
	stops heap[*stop]
}

// stop is a block on a tour, by the best that it could have and, once it was
// looked into, by the best that it has.
type stop struct {
	candidate
	aim   *aim
	block *block
	// list are its candidates, once they are looked for.
	list   heap[candidate]
	opened bool
}

// candidate is an executor that takes a worker at least.
type candidate struct {
	host *host
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

// beforeInBlock orders those of one block, which are in order of rank.
func beforeInBlock(a, b candidate) bool {
	better, equal := a.fitsBetter(&b)
	return better || equal && a.at < b.at
}

func beforeOnTour(a, b *stop) bool {
	better, equal := a.fitsBetter(&b.candidate)
	return better || equal && compareRank(a.host, b.host) < 0
}

func (s *search) tour(most int64) *tour {
	t := &tour{search: s, most: most, stops: heap[*stop]{before: beforeOnTour}}
	t.candidates, t.visited, t.lefts = t.candidates[:0], t.visited[:0], t.lefts[:0]
	scarce := s.scarcity()
	for _, a := range s.aims {
		a.weigh(scarce)
	}
	for a, b := range s.blocks() {
		best := candidate{host: b.hosts[0], size: t.size(a, b.high), left: t.leftover(a, b.low), score: a.score(b.low)}
		t.visited = append(t.visited, stop{aim: a, block: b, candidate: best})
	}
	t.stops.list = t.way[:0]
	for i := range t.visited {
		t.stops.list = append(t.stops.list, &t.visited[i])
	}
	t.way = t.stops.list
	t.stops.init()
	return t
}

// leftover is what one worker more leaves at the point.
func (t *tour) leftover(a *aim, point []int64) []int64 {
	from := len(t.lefts)
	t.lefts = a.leftover(t.lefts, point)
	return t.lefts[from:len(t.lefts):len(t.lefts)]
}

// size is how many workers executors with so much are ordered by: with pack alone
// does it matter.
func (t *tour) size(a *aim, point []int64) int64 {
	if t.constraints.Pack {
		return a.times(point, t.most)
	}
	return 0
}

// times is how many workers the first executor takes.
func (t *tour) times(first candidate) int64 {
	if t.constraints.Pack {
		return first.size
	}
	return t.stops.list[0].aim.times(first.host.free, t.most)
}

// first answers the next executor; false at the end.
func (t *tour) first() (candidate, bool) {
	for len(t.stops.list) > 0 {
		k := t.stops.list[0]
		if k.opened {
			return k.candidate, true
		}
		t.open(k)
		t.settle()
	}
	return candidate{}, false
}

// open looks into a block.
func (t *tour) open(k *stop) {
	k.opened = true
	from := len(t.candidates)
	for at := range t.fitting(k.aim, k.block) {
		if h := k.block.hosts[at]; !t.taken[h] {
			point := k.block.point(at)
			t.candidates = append(t.candidates, candidate{h, at, t.size(k.aim, point), t.leftover(k.aim, point), k.aim.score(point)})
		}
	}
	end := len(t.candidates)
	k.list = heap[candidate]{t.candidates[from:end:end], beforeInBlock}
	k.list.init()
}

// settle moves the first stop to where its best candidate belongs.
func (t *tour) settle() {
	k := t.stops.list[0]
	if len(k.list.list) == 0 {
		t.stops.pop()
		return
	}
	k.candidate = k.list.list[0]
	t.stops.down(0)
}

// pop moves on to the one after the first.
func (t *tour) pop() {
	t.spent++
	t.stops.list[0].list.pop()
	t.settle()
}

// again gives a candidate once more, ordered by a lower size.
func (t *tour) again(k candidate, size int64) {
	k.size = size
	t.stops.push(&stop{candidate: k, opened: true, list: heap[candidate]{[]candidate{k}, beforeInBlock}})
}
