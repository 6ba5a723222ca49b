package match

import (
	"iter"
	"maps"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Shape is what a batch with sameShape must share: SKU, capacity and shares set
// aside for roles. However many attributes executors have, there are few shapes.
type Shape struct {
	key string
	// index is its place in shapeList.
	index int32
	sku   *SKU
	form  *form
	// resources is the capacity of each; names are those of which there is any,
	// in order, and capacity their amounts.
	resources resource.Vector
	names     []string
	capacity  []int64
	// ofSKU are the sums of its SKU, in the order of names.
	ofSKU []*sum
	// shares are what is set aside of capacity, by role.
	shares []share
	// idle is what is free on an executor that holds nothing.
	idle []int64
	// size counts its executors, counts them by standing.
	size   int
	counts [standings]int
	// scratch is the memory of free.
	scratch []int64
}

// shapes are all there are.
type shapes struct {
	byKey map[string]*Shape
	// count is one more than the greatest index; free are the indexes below it
	// that nobody has.
	count int32
	free  []int32
	// crowds counts the shapes by how many of their executors may be given work,
	// and crowd is the most of any.
	crowds []int
	crowd  int
}

func (s *shapes) add(added *Shape) {
	if last := len(s.free) - 1; last >= 0 {
		added.index, s.free = s.free[last], s.free[:last]
	} else {
		added.index = s.count
		s.count++
	}
	s.byKey[added.key] = added
}

func (s *shapes) remove(gone *Shape) {
	s.free = append(s.free, gone.index)
	delete(s.byKey, gone.key)
}

// opened notes that of a shape's executors n may be given work, and before that
// one more or one less.
func (s *shapes) opened(before, n int) {
	for len(s.crowds) <= max(before, n) {
		s.crowds = append(s.crowds, 0)
	}
	s.crowds[before]--
	s.crowds[n]++
	switch {
	case n > s.crowd:
		s.crowd = n
	case before == s.crowd && s.crowds[before] == 0:
		s.crowd = n
	}
}

// shapeOf returns the shape of executors of a kind.
func (ix *Index) shapeOf(kind *Kind) *Shape {
	shares := sharesOf(kind.Reserved)
	key := constraint.Fold(kind.SKU) + "|" + kind.Resources.Canonical() + sharesKey(shares)
	if s := ix.shapes.byKey[key]; s != nil {
		return s
	}
	s := &Shape{key: key, sku: ix.skuOf(constraint.Fold(kind.SKU)), resources: kind.Resources, shares: shares}
	for _, name := range kind.Resources.Names() {
		if kind.Resources[name] == 0 {
			continue
		}
		s.names = append(s.names, name)
		s.capacity = append(s.capacity, kind.Resources[name])
	}
	for i := range shares {
		shares[i].amounts = amountsOf(shares[i].share, s.names)
	}
	s.form = ix.formOf(s.names, shares)
	s.form.shapes++
	s.names = s.form.names
	for _, name := range s.names {
		if s.sku.free[name] == nil {
			s.sku.free[name] = &sum{}
		}
		s.ofSKU = append(s.ofSKU, s.sku.free[name])
	}
	// Nothing is set aside that there is not.
	idle, _ := s.free(&Held{})
	s.idle = slices.Clone(idle)
	ix.shapes.add(s)
	s.sku.addShape(s)
	return s
}

// add counts an executor, which spells its SKU so.
func (s *Shape) add(spelling string) {
	s.size++
	s.sku.spellings[spelling]++
}

// leaveShape counts an executor less, and forgets the shape with its last one.
func (ix *Index) leaveShape(s *Shape, spelling string) {
	if s.sku.spellings[spelling]--; s.sku.spellings[spelling] == 0 {
		delete(s.sku.spellings, spelling)
	}
	if s.size--; s.size > 0 {
		return
	}
	ix.shapes.remove(s)
	ix.leaveForm(s.form)
	s.sku.removeShape(s)
	if len(s.sku.shapes) == 0 {
		delete(ix.skus, s.sku.folded)
	}
}

// amountsOf answers a vector's amounts in the order of names.
func amountsOf(v resource.Vector, names []string) []int64 {
	amounts := make([]int64, len(names))
	for i, name := range names {
		amounts[i] = v[name]
	}
	return amounts
}

// free answers what is free on an executor that holds so much: for each of the
// shape's names what anybody may have, and then for each of its shares what only
// that role may have besides. It is valid until the next call; not ok when more
// is used than there is, or than may be used without what is set aside for
// others.
func (s *Shape) free(h *Held) (free []int64, ok bool) {
	s.scratch = append(s.scratch[:0], s.capacity...)
	for name, amount := range h.Used {
		i, found := slices.BinarySearch(s.names, name)
		if !found || s.scratch[i] < amount {
			return nil, false
		}
		s.scratch[i] -= amount
	}
	for _, share := range s.shares {
		used := h.byRole[share.role]
		for i, amount := range share.amounts {
			left := max(0, amount-used[s.names[i]])
			s.scratch = append(s.scratch, left)
			s.scratch[i] -= left
			if s.scratch[i] < 0 {
				return nil, false
			}
		}
	}
	return s.scratch, true
}

// offer adds what is free on an executor to the sums of all that is; withdraw
// takes it away.
func (s *Shape) offer(free []int64) {
	for i, amount := range free {
		name := i % len(s.names)
		s.form.total[name].add(uint64(amount))
		s.ofSKU[name].add(uint64(amount))
	}
}

func (s *Shape) withdraw(free []int64) {
	for i, amount := range free {
		name := i % len(s.names)
		s.form.total[name].subtract(uint64(amount))
		s.ofSKU[name].subtract(uint64(amount))
	}
}

// SKU is what the executors of one SKU have together.
type SKU struct {
	// folded is its name for comparisons. Executors without a SKU belong to the one
	// without a name. number tells it apart in fields.
	folded string
	number int32
	// shapes are those of its executors, by key; spellings counts executors by how they
	// spell it.
	shapes    map[string]*Shape
	spellings map[string]int
	// free are the sums of each resource over its executors that may be given work.
	free map[string]*sum
	// most is the most that any of its shapes has of each resource; nil when that is to
	// be found out.
	most resource.Vector
}

func (s *SKU) addShape(added *Shape) { s.shapes[added.key], s.most = added, nil }

func (s *SKU) removeShape(gone *Shape) {
	delete(s.shapes, gone.key)
	s.most = nil
}

// skuOf returns the SKU with that folded name, which is made if need be.
func (ix *Index) skuOf(folded string) *SKU {
	s := ix.skus[folded]
	if s == nil {
		ix.lastSKU++
		s = &SKU{folded: folded, number: ix.lastSKU, shapes: map[string]*Shape{}, spellings: map[string]int{}, free: map[string]*sum{}}
		ix.skus[folded] = s
	}
	return s
}

// SKU returns the SKU of a name, without regard to case; nil if no executor has it.
func (ix *Index) SKU(name string) *SKU { return ix.skus[constraint.Fold(name)] }

// SKUs returns the folded names of the SKUs of executors, in no order.
func (ix *Index) SKUs() iter.Seq[string] { return maps.Keys(ix.skus) }

// Name returns the first of the spellings of its executors.
func (s *SKU) Name() string {
	return slices.Min(slices.Collect(maps.Keys(s.spellings)))
}

// Most returns the most that any of its executors has of each resource.
func (s *SKU) Most() resource.Vector {
	if s.most == nil {
		s.most = resource.Vector{}
		for _, shape := range s.shapes {
			for i, name := range shape.names {
				s.most[name] = max(s.most[name], shape.capacity[i])
			}
		}
	}
	return s.most
}

// SKU returns the SKU of the shape, folded.
func (s *Shape) SKU() string { return s.sku.folded }
