package match

import (
	"cmp"
	"math"
	"slices"
)

// field is executors by their amounts of some resources, so that a search finds
// those that fit, and of them the best, without looking at all.
//
//	field   ──▶ blocks, in order of SKU and of a curve through the amounts
//	└─ block      at most blockSize executors, in order of rank, with the least
//	              and the most that they have of each resource
//
// A search looks at each block's bounds, and into those blocks only that may hold
// something better than what it has. The amounts of a block lie side by side, so
// that looking into one costs a few nanoseconds an executor: where bounds say
// nothing, as there always are fleets and requests for which they do not, looking
// into all blocks is what the search comes to.
//
// It is the same whether executors are alike or all different. One that changes
// is moved in its block or between two.
type field struct {
	width  int
	blocks []*block
	// limit is blockSize, but in tests.
	limit int
}

// blockSize bounds a block: with too many executors bounds say little, with too
// few there are too many bounds.
const blockSize = 256

// block is a run of a field.
type block struct {
	// from is the least spot that belongs to it; the first block has all that is
	// less as well.
	from spot
	// executors are in order of rank; traits and amounts are theirs.
	executors []*Executor
	traits    []traits
	amounts   []int64
	// sums are those of each amount; nil for a block that is made for one search.
	sums []sum
	// low and high are the least and the most of each amount, and so are the
	// SKUs; loose says that some of these may be further apart than need be.
	low, high       []int64
	lowSKU, highSKU int32
	loose           bool
}

// traits are what a search asks of an executor besides amounts, in numbers.
type traits struct{ class, shape, sku int32 }

func (h *Executor) traits() traits { return traits{h.class.index, h.shape.index, h.shape.sku.number} }

// spot is where an executor belongs in a field.
type spot struct {
	sku        int32
	point      []int64
	generation int64
	id         string
}

func spotOf(h *Executor, point []int64) spot {
	return spot{h.shape.sku.number, point, h.Generation, h.ID}
}

func compareSpots(a, b *spot) int {
	if a.sku != b.sku {
		return cmp.Compare(a.sku, b.sku)
	}
	if order := compareCurve(a.point, b.point); order != 0 {
		return order
	}
	if a.generation != b.generation {
		return cmp.Compare(b.generation, a.generation)
	}
	return cmp.Compare(a.id, b.id)
}

// compareCurve orders points along a curve on which those that are near in the
// order are near in every amount: the one amount decides in which they differ in
// the highest bit (Z-order). Bits are those of floating point numbers, so that
// amounts count by their proportion, whatever their unit.
func compareCurve(a, b []int64) int {
	highest, at := uint64(0), -1
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		differs := math.Float64bits(float64(a[i])) ^ math.Float64bits(float64(b[i]))
		if highest < differs && highest < highest^differs {
			highest, at = differs, i
		}
	}
	if at < 0 {
		return 0
	}
	return cmp.Compare(a[at], b[at])
}

// find answers the place of the block that a spot belongs to.
func (f *field) find(k spot) int {
	first, end := 1, len(f.blocks)
	for first < end {
		middle := (first + end) / 2
		if compareSpots(&f.blocks[middle].from, &k) <= 0 {
			first = middle + 1
		} else {
			end = middle
		}
	}
	return first - 1
}

// insert adds an executor at a point.
func (f *field) insert(h *Executor, point []int64) {
	k := spotOf(h, point)
	if len(f.blocks) == 0 {
		f.blocks = append(f.blocks, newBlock(k, f.width))
	}
	i := f.find(k)
	b := f.blocks[i]
	b.insert(h, h.traits(), point)
	if len(b.executors) > f.limit {
		f.blocks = slices.Insert(f.blocks, i+1, b.split())
	}
}

// remove takes out an executor that is at the point.
func (f *field) remove(h *Executor, point []int64) {
	i := f.find(spotOf(h, point))
	b := f.blocks[i]
	b.remove(h, point)
	switch {
	case len(b.executors) == 0:
		f.blocks = slices.Delete(f.blocks, i, i+1)
	case i > 0 && len(b.executors) < f.limit/8 && len(b.executors)+len(f.blocks[i-1].executors) <= f.limit/2:
		for at, moved := range b.executors {
			f.blocks[i-1].insert(moved, b.traits[at], b.point(at))
		}
		f.blocks = slices.Delete(f.blocks, i, i+1)
	}
}

func newBlock(from spot, width int) *block {
	from.point = slices.Clone(from.point)
	return &block{from: from, low: make([]int64, width), high: make([]int64, width), sums: make([]sum, width)}
}

// point answers the amounts of the executor at a place.
func (b *block) point(at int) []int64 {
	width := len(b.low)
	return b.amounts[at*width : (at+1)*width : (at+1)*width]
}

func (b *block) insert(h *Executor, k traits, point []int64) {
	at, _ := slices.BinarySearchFunc(b.executors, h, Compare)
	b.executors = slices.Insert(b.executors, at, h)
	b.traits = slices.Insert(b.traits, at, k)
	b.amounts = slices.Insert(b.amounts, at*len(b.low), point...)
	b.addUp(point)
	b.widen(k, point, len(b.executors) == 1)
}

// addUp adds the amounts of one executor to the sums.
func (b *block) addUp(point []int64) {
	for i, amount := range point {
		b.sums[i].add(uint64(amount))
	}
}

// widen makes the bounds include one more, or that one alone.
func (b *block) widen(k traits, point []int64, alone bool) {
	if alone {
		copy(b.low, point)
		copy(b.high, point)
		b.lowSKU, b.highSKU = k.sku, k.sku
		return
	}
	for i, amount := range point {
		b.low[i], b.high[i] = min(b.low[i], amount), max(b.high[i], amount)
	}
	b.lowSKU, b.highSKU = min(b.lowSKU, k.sku), max(b.highSKU, k.sku)
}

func (b *block) remove(h *Executor, point []int64) {
	at, found := slices.BinarySearchFunc(b.executors, h, Compare)
	if !found {
		panic("match: an index does not hold what it should")
	}
	width := len(b.low)
	b.executors = slices.Delete(b.executors, at, at+1)
	b.traits = slices.Delete(b.traits, at, at+1)
	b.amounts = slices.Delete(b.amounts, at*width, (at+1)*width)
	for i, amount := range point {
		b.sums[i].subtract(uint64(amount))
	}
	b.loose = true
}

// tighten makes the bounds exact. It is done when a search looks at them, for
// many executors may have left since the last did.
func (b *block) tighten() {
	if !b.loose {
		return
	}
	b.loose = false
	for at, k := range b.traits {
		b.widen(k, b.point(at), at == 0)
	}
}

// split moves the upper half of the block, in order of spots, to a new one.
func (b *block) split() *block {
	spots := make([]spot, len(b.executors))
	order := make([]int, len(b.executors))
	for at, h := range b.executors {
		spots[at], order[at] = spot{b.traits[at].sku, b.point(at), h.Generation, h.ID}, at
	}
	slices.SortFunc(order, func(i, j int) int { return compareSpots(&spots[i], &spots[j]) })
	middle := spots[order[len(order)/2]]
	upper := newBlock(middle, len(b.low))
	lower := newBlock(b.from, len(b.low))
	for at, h := range b.executors {
		half := lower
		if compareSpots(&spots[at], &middle) >= 0 {
			half = upper
		}
		half.executors = append(half.executors, h)
		half.traits = append(half.traits, b.traits[at])
		half.amounts = append(half.amounts, b.point(at)...)
		half.addUp(b.point(at))
	}
	lower.loose, upper.loose = true, true
	lower.tighten()
	upper.tighten()
	*b = *lower
	return upper
}
