package inventory

import (
	"encoding/binary"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// shape is what a batch with sameShape must share: SKU, capacity and shares set
// aside for roles. However many attributes executors have, there are few shapes.
type shape struct {
	key string
	sku *sku
	// resources is the capacity of each; names are those of which there is any,
	// in order, and capacity their amounts.
	resources resource.Vector
	names     []string
	capacity  []int64
	// shares are what is set aside of capacity, by role.
	shares []share
	// total are the sums over all executors that may be given work, one for
	// each name, shared with the other shapes.
	total []*sum
	// size counts its executors.
	size int
	// scratch and keyBuf are the memory of free and keyOf.
	scratch []int64
	keyBuf  []byte
}

// shapeOf answers the shape of an executor.
func (c *Core) shapeOf(e *model.Executor) *shape {
	shares := sharesOf(e)
	key := constraint.Fold(e.SKU) + "|" + e.Resources.Canonical() + sharesKey(shares)
	if s := c.shapes[key]; s != nil {
		return s
	}
	s := &shape{key: key, sku: c.skuOf(constraint.Fold(e.SKU)), resources: e.Resources, shares: shares}
	for _, name := range e.Resources.Names() {
		if e.Resources[name] == 0 {
			continue
		}
		if c.total[name] == nil {
			c.total[name] = &sum{}
		}
		s.names = append(s.names, name)
		s.capacity = append(s.capacity, e.Resources[name])
		s.total = append(s.total, c.total[name])
	}
	for i := range shares {
		shares[i].amounts = amountsOf(shares[i].share, s.names)
	}
	c.shapes[key] = s
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
	delete(c.shapes, s.key)
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

// keyOf tells amounts that are free apart from others. It is valid until the
// next call.
func (s *shape) keyOf(free []int64) []byte {
	s.keyBuf = s.keyBuf[:0]
	for _, amount := range free {
		s.keyBuf = binary.BigEndian.AppendUint64(s.keyBuf, uint64(amount))
	}
	return s.keyBuf
}

// offer adds what is free on an executor to the sums of all that is; withdraw
// takes it away.
func (s *shape) offer(free []int64) {
	for i, amount := range free {
		s.total[i%len(s.names)].add(uint64(amount))
	}
}

func (s *shape) withdraw(free []int64) {
	for i, amount := range free {
		s.total[i%len(s.names)].subtract(uint64(amount))
	}
}
