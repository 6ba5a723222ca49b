package match

import (
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Shape holds the executors with equal SKU, capacity and role shares. All workers of a
// batch with sameShape run on one shape.
type Shape struct {
	key    string
	sku    *SKU
	layout *layout
	// resources is the capacity of each executor. capacity has the same amounts in the order
	// of the layout.
	resources resource.Vector
	capacity  []int64
	// skuFree holds the sums of the shape's SKU, in the order of the layout.
	skuFree []*sum
	// shares lists the parts of the capacity that are set aside, by role.
	shares []share
	// idle is what is free on an executor without leases.
	idle []int64
	// size counts the executors of the shape, and counts counts them by eligibility.
	size   int
	counts [eligibilities]int
	// freeCapacity is the result of the last search for one shape that looked at this shape.
	freeCapacity shapeCapacity
	// scratch is memory that the method free reuses.
	scratch []int64
}

// shapes holds all shapes by key, and the number of eligible executors of the largest
// shape.
type shapes struct {
	byKey map[string]*Shape
	// byEligible counts the shapes by how many eligible executors they have. mostEligible is
	// the highest number of eligible executors of a shape.
	byEligible   []int
	mostEligible int
}

// recount records that a shape has n eligible executors. before differs from n by one.
func (s *shapes) recount(before, n int) {
	for len(s.byEligible) <= max(before, n) {
		s.byEligible = append(s.byEligible, 0)
	}
	s.byEligible[before]--
	s.byEligible[n]++
	if n > s.mostEligible || before == s.mostEligible && s.byEligible[before] == 0 {
		s.mostEligible = n
	}
}

// shapeOf returns the shape of a kind, and creates it if there is none.
func (ix *Index) shapeOf(kind *Kind) *Shape {
	shares := sharesOf(kind.Reserved)
	key := constraint.Fold(kind.SKU) + "|" + kind.Resources.Canonical() + sharesKey(shares)
	if s := ix.shapes.byKey[key]; s != nil {
		return s
	}
	s := &Shape{key: key, sku: ix.skuOf(constraint.Fold(kind.SKU)), resources: kind.Resources, shares: shares}
	names := slices.DeleteFunc(kind.Resources.Names(), func(name string) bool { return kind.Resources[name] == 0 })
	s.layout = ix.layoutOf(names, shares)
	s.layout.shapes++
	for _, name := range names {
		s.capacity = append(s.capacity, kind.Resources[name])
		s.skuFree = append(s.skuFree, sumOf(s.sku.free, name))
		for i := range shares {
			shares[i].amounts = append(shares[i].amounts, shares[i].share[name])
		}
	}
	// Shares never exceed the capacity.
	idle, _ := s.free(&Leased{})
	s.idle = slices.Clone(idle)
	ix.shapes.byKey[s.key] = s
	s.sku.shapes[s.key], s.sku.most = s, nil
	return s
}

// sumOf returns the sum of a name, and creates it if there is none.
func sumOf(sums map[string]*sum, name string) *sum {
	if sums[name] == nil {
		sums[name] = &sum{}
	}
	return sums[name]
}

// add counts an executor and the spelling of its SKU.
func (s *Shape) add(spelling string) {
	s.size++
	s.sku.spellings[spelling]++
}

// leaveShape removes one executor from the counts, and deletes the shape with its last
// executor.
func (ix *Index) leaveShape(s *Shape, spelling string) {
	if s.sku.spellings[spelling]--; s.sku.spellings[spelling] == 0 {
		delete(s.sku.spellings, spelling)
	}
	if s.size--; s.size > 0 {
		return
	}
	delete(ix.shapes.byKey, s.key)
	ix.leaveLayout(s.layout)
	delete(s.sku.shapes, s.key)
	s.sku.most = nil
	if len(s.sku.shapes) == 0 {
		delete(ix.skus, s.sku.folded)
	}
}

// free returns what is free on an executor with these leases. First come the amounts of
// the layout's resources that any worker may use. Then come, for each share, the amounts
// that only its role may use in addition. The result is valid until the next call. It is
// not ok if leases use more than the capacity, or use a part that is set aside for other
// roles.
func (s *Shape) free(l *Leased) (free []int64, ok bool) {
	s.scratch = append(s.scratch[:0], s.capacity...)
	for name, amount := range l.Used {
		i, found := slices.BinarySearch(s.layout.names, name)
		if !found || s.scratch[i] < amount {
			return nil, false
		}
		s.scratch[i] -= amount
	}
	for _, share := range s.shares {
		used := l.byRole[share.role]
		for i, amount := range share.amounts {
			left := max(0, amount-used[s.layout.names[i]])
			s.scratch = append(s.scratch, left)
			s.scratch[i] -= left
			if s.scratch[i] < 0 {
				return nil, false
			}
		}
	}
	return s.scratch, true
}

// addFree adds what is free on an executor to the sums, multiplied by sign.
func (s *Shape) addFree(free []int64, sign int64) {
	for i, amount := range free {
		name := i % len(s.skuFree)
		s.layout.fleetFree[name].add(sign * amount)
		s.skuFree[name].add(sign * amount)
	}
}

// SKU holds the executors of one SKU.
type SKU struct {
	// folded is the SKU's name for comparisons. Executors without a SKU belong to the SKU
	// with an empty name. number identifies the SKU in capacity indexes.
	folded string
	number int32
	// shapes holds the shapes of the SKU's executors by key. spellings counts the executors
	// by their spelling of the SKU.
	shapes    map[string]*Shape
	spellings map[string]int
	// free holds the sum of each resource over the SKU's eligible executors.
	free map[string]*sum
	// most is the highest amount of each resource in the SKU's shapes; nil until it is
	// computed.
	most resource.Vector
}

// skuOf returns the SKU with a folded name, and creates it if there is none.
func (ix *Index) skuOf(folded string) *SKU {
	s := ix.skus[folded]
	if s == nil {
		ix.lastSKU++
		s = &SKU{folded: folded, number: ix.lastSKU, shapes: map[string]*Shape{}, spellings: map[string]int{},
			free: map[string]*sum{}}
		ix.skus[folded] = s
	}
	return s
}

// SKU returns the SKU with a name, without regard to case; nil if no executor has it.
func (ix *Index) SKU(name string) *SKU { return ix.skus[constraint.Fold(name)] }

// Name returns the SKU's name in the first of the spellings that its executors use.
func (s *SKU) Name() string {
	return slices.Min(slices.Collect(maps.Keys(s.spellings)))
}

// Most returns the highest amount of each resource that any executor of the SKU has.
func (s *SKU) Most() resource.Vector {
	if s.most == nil {
		s.most = resource.Vector{}
		for _, shape := range s.shapes {
			for i, name := range shape.layout.names {
				s.most[name] = max(s.most[name], shape.capacity[i])
			}
		}
	}
	return s.most
}

// SKU returns the folded SKU of the shape.
func (s *Shape) SKU() string { return s.sku.folded }
