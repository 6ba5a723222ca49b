package inventory

import (
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// shape is what a batch with sameShape must share: SKU, capacity and shares set
// aside for roles. However many attributes executors have, there are few shapes.
type shape struct {
	key string
	// index is its place in shapeList.
	index int32
	sku   *sku
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
	// size counts its executors, standing by why they may or may not be given
	// work.
	size     int
	standing [standings]int
	// scratch is the memory of free.
	scratch []int64
}

// shapes are all there are.
type shapes struct {
	byKey map[string]*shape
	// count is one more than the greatest index; free are the indexes below it
	// that nobody has.
	count int32
	free  []int32
	// crowds counts the shapes by how many of their executors may be given work,
	// and crowd is the most of any.
	crowds []int
	crowd  int
}

func (s *shapes) add(added *shape) {
	if last := len(s.free) - 1; last >= 0 {
		added.index, s.free = s.free[last], s.free[:last]
	} else {
		added.index = s.count
		s.count++
	}
	s.byKey[added.key] = added
}

func (s *shapes) remove(gone *shape) {
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

// shapeOf answers the shape of an executor.
func (c *Core) shapeOf(e *model.Executor) *shape {
	shares := sharesOf(e)
	key := constraint.Fold(e.SKU) + "|" + e.Resources.Canonical() + sharesKey(shares)
	if s := c.shapes.byKey[key]; s != nil {
		return s
	}
	s := &shape{key: key, sku: c.skuOf(constraint.Fold(e.SKU)), resources: e.Resources, shares: shares}
	for _, name := range e.Resources.Names() {
		if e.Resources[name] == 0 {
			continue
		}
		s.names = append(s.names, name)
		s.capacity = append(s.capacity, e.Resources[name])
	}
	for i := range shares {
		shares[i].amounts = amountsOf(shares[i].share, s.names)
	}
	s.form = c.formOf(s.names, shares)
	s.form.shapes++
	s.names = s.form.names
	for _, name := range s.names {
		if s.sku.free[name] == nil {
			s.sku.free[name] = &sum{}
		}
		s.ofSKU = append(s.ofSKU, s.sku.free[name])
	}
	// Nothing is set aside that there is not.
	idle, _ := s.free(&hold{})
	s.idle = slices.Clone(idle)
	c.shapes.add(s)
	s.sku.addShape(s)
	return s
}

// add counts an executor, which spells its SKU so.
func (s *shape) add(spelling string) {
	s.size++
	s.sku.spellings[spelling]++
}

// leaveShape counts an executor less, and forgets the shape with its last one.
func (c *Core) leaveShape(s *shape, spelling string) {
	if s.sku.spellings[spelling]--; s.sku.spellings[spelling] == 0 {
		delete(s.sku.spellings, spelling)
	}
	if s.size--; s.size > 0 {
		return
	}
	c.shapes.remove(s)
	c.leaveForm(s.form)
	s.sku.removeShape(s)
	c.dropSKU(s.sku)
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
func (s *shape) free(h *hold) (free []int64, ok bool) {
	s.scratch = append(s.scratch[:0], s.capacity...)
	for name, amount := range h.used {
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
func (s *shape) offer(free []int64) {
	for i, amount := range free {
		name := i % len(s.names)
		s.form.total[name].add(uint64(amount))
		s.ofSKU[name].add(uint64(amount))
	}
}

func (s *shape) withdraw(free []int64) {
	for i, amount := range free {
		name := i % len(s.names)
		s.form.total[name].subtract(uint64(amount))
		s.ofSKU[name].subtract(uint64(amount))
	}
}
