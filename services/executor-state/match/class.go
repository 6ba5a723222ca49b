package match

import (
	"cmp"
	"iter"
	"slices"

	"berth.dev/pkg/constraint"
)

// Class holds the executors with equal SKU and attributes. Requests, pools and requests
// to disable select executors by SKU and attributes, so they select all executors of a
// class or none. If each executor has an attribute value of its own, there are as many
// classes as executors. So no search looks at all classes.
type Class struct {
	key string
	// index is the place of the class in selections.classes.
	index int32
	// host describes any executor of the class, without an ID.
	host  constraint.Host
	pools []*Pool
	// attributes are the folded attributes of host.
	attributes Attributes
	// executors are in no order; counts counts them by eligibility.
	executors []*Executor
	counts    [eligibilities]int
	// closedBy lists the IDs of the requests that close the class, in order.
	closedBy []string
}

// Host returns a description of any executor of the class, without an ID.
func (k *Class) Host() constraint.Host { return k.host }

// HasAll reports whether the executors of the class have all the attributes.
func (k *Class) HasAll(attributes Attributes) bool { return k.attributes.Contain(attributes) }

// Pools returns the pools of the class's executors. Executors without a pool are in the
// pool without a name.
func (k *Class) Pools() []*Pool { return k.pools }

// Executors returns the executors of the class, in no order.
func (k *Class) Executors() []*Executor { return k.executors }

// Count returns how many executors of the class have an eligibility.
func (k *Class) Count(e Eligibility) int { return k.counts[e] }

// ClosedBy returns the IDs of the requests that close the class, in order.
func (k *Class) ClosedBy() []string { return k.closedBy }

// IsClosedBy reports whether a request closes the class.
func (k *Class) IsClosedBy(request string) bool {
	_, found := slices.BinarySearch(k.closedBy, request)
	return found
}

// Pool counts the classes of a pool, and its executors that are not LOST. It exists while
// an executor is in the pool. All executors without a pool form the pool with an empty
// name.
type Pool struct {
	// Name is folded.
	Name string
	// Living counts the pool's executors that are not LOST.
	Living  int
	classes int
}

func compareIndexes(a, b *Class) int { return cmp.Compare(a.index, b.index) }

// classOf returns the class of a kind, and creates it if there is none.
func (ix *Index) classOf(kind *Kind) *Class {
	// The spelling of the SKU is part of the key. Otherwise the shown spelling would depend
	// on which executor registered first.
	key := kind.SKU + "|" + AttributesKey(kind.Attributes)
	if k := ix.classes[key]; k != nil {
		return k
	}
	k := &Class{
		key: key, host: constraint.Host{SKU: kind.SKU, Attributes: kind.Attributes},
		attributes: AttributesOf(kind.Attributes),
	}
	ix.classes[key] = k
	ix.joinPools(k, ix.owner.PoolsOf(k.host))
	ix.selections.add(k)
	k.closedBy = ix.owner.ClosedBy(k.attributes)
	ix.closed.set(k.index, len(k.closedBy) > 0)
	return k
}

// joinKind moves an executor to the class and the shape of a kind; nil for none. The
// executor joins the new class and shape before it leaves the old ones. So a class with
// one executor survives a new registration of that executor.
func (ix *Index) joinKind(e *Executor, kind *Kind) {
	class, shape := e.class, e.shape
	e.class, e.shape = nil, nil
	if kind != nil {
		e.class, e.shape = ix.classOf(kind), ix.shapeOf(kind)
	}
	if class != nil {
		class.remove(e)
	}
	if kind != nil {
		e.class.add(e)
		e.shape.add(kind.SKU)
	}
	if class == nil {
		return
	}
	if len(class.executors) == 0 {
		delete(ix.classes, class.key)
		ix.closed.set(class.index, false)
		ix.selections.remove(class)
		ix.leavePools(class)
	}
	ix.leaveShape(shape, class.host.SKU)
}

// living counts the placed executors that are not LOST.
func (k *Class) living() (n int) {
	for _, count := range k.counts {
		n += count
	}
	return n - k.counts[Lost]
}

func (k *Class) add(e *Executor) {
	e.at = len(k.executors)
	k.executors = append(k.executors, e)
}

func (k *Class) remove(e *Executor) {
	last := len(k.executors) - 1
	moved := k.executors[last]
	k.executors[e.at], moved.at = moved, e.at
	k.executors[last] = nil
	k.executors = k.executors[:last]
}

// joinPools moves the executors of a class to the pools with some names.
func (ix *Index) joinPools(k *Class, names []string) {
	ix.leavePools(k)
	k.host.Pools = names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		folded := constraint.Fold(name)
		joined := ix.pools[folded]
		if joined == nil {
			joined = &Pool{Name: folded}
			ix.pools[folded] = joined
		}
		joined.classes++
		joined.Living += k.living()
		k.pools = append(k.pools, joined)
	}
}

// leavePools removes the executors of a class from their pools.
func (ix *Index) leavePools(k *Class) {
	for _, left := range k.pools {
		left.Living -= k.living()
		if left.classes--; left.classes == 0 {
			delete(ix.pools, left.Name)
		}
	}
	k.pools = nil
}

// SetPools moves the executors of each class to the pools that poolsOf returns for the
// class, in order of name.
func (ix *Index) SetPools(poolsOf func(constraint.Host) []string) {
	for _, k := range ix.classes {
		ix.joinPools(k, poolsOf(k.host))
	}
	ix.selections.dropPooled()
	ix.kindVersion++
	ix.changes.invalidate()
}

// Classes iterates over the classes that have all the attributes, in order of index.
func (ix *Index) Classes(attributes Attributes) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		for k := range ix.selections.all(ix.selections.wholeFleet) {
			if k.attributes.Contain(attributes) && !yield(k) {
				return
			}
		}
	}
}

// Close closes a class to new work on behalf of a request, or removes that closure. A
// class is closed while any request closes it. Its executors do not move in the index: a
// search skips them by one bit of the class. So closing the whole fleet costs a look at
// each class and a count of each executor. Close reports whether the eligibility of the
// executors may have changed.
func (ix *Index) Close(k *Class, request string, closed bool) bool {
	at, found := slices.BinarySearch(k.closedBy, request)
	if found == closed {
		return false
	}
	before := len(k.closedBy)
	if closed {
		k.closedBy = slices.Insert(k.closedBy, at, request)
	} else {
		k.closedBy = slices.Delete(k.closedBy, at, at+1)
	}
	if before > 0 && len(k.closedBy) > 0 {
		return false
	}
	ix.closed.set(k.index, len(k.closedBy) > 0)
	for _, e := range k.executors {
		ix.addCounts(e, -1)
		ix.count(e)
	}
	// Refusals and sums that include these executors are now outdated.
	ix.kindVersion++
	ix.freeVersion++
	ix.ineligibleVersion++
	ix.changes.invalidate()
	return true
}
