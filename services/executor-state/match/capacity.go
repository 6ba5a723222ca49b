package match

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// capacityIndex orders executors by their amounts of some resources, so that a search
// finds the best executors that fit without looking at all executors.
//
//	index   ──▶ blocks, in order of SKU and of a curve through the amounts
//	└─ block      at most blockSize executors, in order of rank, with the lowest and the
//	              highest amount of each resource
//
// A search looks at the bounds of each block, and at the executors of the blocks whose
// bounds allow a better executor than the best one found. The amounts of a block are
// adjacent in memory, so each executor costs a few nanoseconds. For some fleets and
// requests the bounds exclude no block, and a search then looks at all executors.
//
// The structure is the same whether executors are alike or all differ. When an executor
// changes, it moves within its block or between two blocks.
type capacityIndex struct {
	width  int
	blocks []*block
	// limit is blockSize; tests lower it.
	limit int
}

// blockSize limits the number of executors in a block. Larger blocks have wider bounds,
// which exclude less. Smaller blocks mean that a search compares more bounds.
const blockSize = 256

// block is a range of a capacity index.
type block struct {
	// from is the lowest position that belongs to the block. The first block also has all
	// lower positions.
	from position
	// executors are in order of rank. shapes, traits and amounts belong to the executors at
	// the same place.
	executors []*Executor
	shapes    []*Shape
	traits    []traits
	amounts   []int64
	// sums holds the sum of each amount; nil for a block that is made for one search.
	sums []sum
	// low and high are the bounds of each amount, lowSKU and highSKU the bounds of the SKU
	// numbers. While loose is set, they may be too wide.
	low, high       []int64
	lowSKU, highSKU int32
	loose           bool
}

// traits are the properties of an executor that every search compares, in addition to amounts.
type traits struct{ class, sku int32 }

func (e *Executor) traits() traits { return traits{e.class.index, e.shape.sku.number} }

// position is the place of an executor in the order of an index.
type position struct {
	sku        int32
	point      []int64
	generation int64
	id         string
}

func positionOf(e *Executor, point []int64) position {
	return position{e.shape.sku.number, point, e.Generation, e.ID}
}

func comparePositions(a, b *position) int {
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

// compareCurve orders points along a Z-order curve, on which neighbors have similar
// amounts. The amount whose difference has the highest bit decides. The bits are those of
// floating point numbers, so differences count in proportion to the amount, whatever its
// unit.
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

// find returns the place of the block to which a position belongs.
func (x *capacityIndex) find(p position) int {
	return sort.Search(len(x.blocks)-1, func(i int) bool { return comparePositions(&x.blocks[i+1].from, &p) > 0 })
}

// insert adds an executor at a point.
func (x *capacityIndex) insert(e *Executor, point []int64) {
	p := positionOf(e, point)
	if len(x.blocks) == 0 {
		x.blocks = append(x.blocks, newBlock(p, x.width))
	}
	i := x.find(p)
	b := x.blocks[i]
	b.insert(e, point)
	if len(b.executors) > x.limit {
		x.blocks = slices.Insert(x.blocks, i+1, b.split())
	}
}

// remove removes an executor that is at a point. It merges a small block into the one
// before it.
func (x *capacityIndex) remove(e *Executor, point []int64) {
	i := x.find(positionOf(e, point))
	b := x.blocks[i]
	b.remove(e, point)
	switch {
	case len(b.executors) == 0:
		x.blocks = slices.Delete(x.blocks, i, i+1)
	case i > 0 && len(b.executors) < x.limit/8 && len(b.executors)+len(x.blocks[i-1].executors) <= x.limit/2:
		for at, moved := range b.executors {
			x.blocks[i-1].insert(moved, b.point(at))
		}
		x.blocks = slices.Delete(x.blocks, i, i+1)
	}
}

func newBlock(from position, width int) *block {
	from.point = slices.Clone(from.point)
	return &block{from: from, low: make([]int64, width), high: make([]int64, width), sums: make([]sum, width)}
}

// point returns the amounts of the executor at a place.
func (b *block) point(at int) []int64 {
	width := len(b.low)
	return b.amounts[at*width : (at+1)*width : (at+1)*width]
}

func (b *block) insert(e *Executor, point []int64) {
	at, _ := slices.BinarySearchFunc(b.executors, e, Compare)
	b.executors = slices.Insert(b.executors, at, e)
	b.shapes = slices.Insert(b.shapes, at, e.shape)
	b.traits = slices.Insert(b.traits, at, e.traits())
	b.amounts = slices.Insert(b.amounts, at*len(b.low), point...)
	b.addToSums(point, 1)
	b.widen(b.traits[at], point, len(b.executors) == 1)
}

// append adds an executor behind the others, without updating sums and bounds.
func (b *block) append(e *Executor, point []int64) {
	b.executors, b.shapes = append(b.executors, e), append(b.shapes, e.shape)
	b.traits, b.amounts = append(b.traits, e.traits()), append(b.amounts, point...)
}

// addToSums adds the amounts of one executor to the sums, multiplied by sign.
func (b *block) addToSums(point []int64, sign int64) {
	for i, amount := range point {
		b.sums[i].add(sign * amount)
	}
}

// widen extends the bounds to include an executor. If the executor is alone, it sets the
// bounds to the executor's amounts.
func (b *block) widen(t traits, point []int64, alone bool) {
	if alone {
		copy(b.low, point)
		copy(b.high, point)
		b.lowSKU, b.highSKU = t.sku, t.sku
		return
	}
	for i, amount := range point {
		b.low[i], b.high[i] = min(b.low[i], amount), max(b.high[i], amount)
	}
	b.lowSKU, b.highSKU = min(b.lowSKU, t.sku), max(b.highSKU, t.sku)
}

func (b *block) remove(e *Executor, point []int64) {
	at, found := slices.BinarySearchFunc(b.executors, e, Compare)
	if !found {
		panic("match: the executor is not in the block of its position")
	}
	width := len(b.low)
	b.executors = slices.Delete(b.executors, at, at+1)
	b.shapes = slices.Delete(b.shapes, at, at+1)
	b.traits = slices.Delete(b.traits, at, at+1)
	b.amounts = slices.Delete(b.amounts, at*width, (at+1)*width)
	b.addToSums(point, -1)
	b.loose = true
}

// tighten makes the bounds exact. Only searches call it, because many executors may leave
// a block between two searches.
func (b *block) tighten() {
	if !b.loose {
		return
	}
	b.loose = false
	for at, t := range b.traits {
		b.widen(t, b.point(at), at == 0)
	}
}

// split moves the upper half of the block, in order of positions, to a new block.
func (b *block) split() *block {
	positions := make([]position, len(b.executors))
	for at, e := range b.executors {
		positions[at] = positionOf(e, b.point(at))
	}
	sorted := slices.Clone(positions)
	slices.SortFunc(sorted, func(p, q position) int { return comparePositions(&p, &q) })
	middle := sorted[len(sorted)/2]
	upper, lower := newBlock(middle, len(b.low)), newBlock(b.from, len(b.low))
	for at, e := range b.executors {
		half := lower
		if comparePositions(&positions[at], &middle) >= 0 {
			half = upper
		}
		half.append(e, b.point(at))
		half.addToSums(b.point(at), 1)
	}
	lower.loose, upper.loose = true, true
	lower.tighten()
	upper.tighten()
	*b = *lower
	return upper
}
