package match

import (
	"cmp"
	"iter"
	"slices"

	"berth.dev/pkg/constraint"
)

// Class is the executors with equal SKU and attributes: whatever selects executors by
// what they are, a request, a pool or a request to disable, selects all of a class or
// none. Where each executor has an attribute of its own there are as many classes as
// executors, so no search looks at all of them.
type Class struct {
	key string
	// index is its place in sections.classes.
	index int32
	// host is any of its executors, without an ID.
	host  constraint.Host
	pools []*Pool
	// attributes are those of host.
	attributes Attributes
	// executors are in no order; counts counts them by standing.
	executors []*Executor
	counts    [standings]int
	// closedBy are the IDs of the requests that close the class, in order.
	closedBy []string
}

// Host returns any executor of the class, without an ID.
func (k *Class) Host() constraint.Host { return k.host }

// Pools returns the pools that the executors of the class are in; where they are in
// none, the pool without a name.
func (k *Class) Pools() []*Pool { return k.pools }

// Executors returns the executors of the class, in no order.
func (k *Class) Executors() []*Executor { return k.executors }

// Count returns how many of its executors have a standing.
func (k *Class) Count(s Standing) int { return k.counts[s] }

// ClosedBy returns the IDs of the requests that close the class, in order.
func (k *Class) ClosedBy() []string { return k.closedBy }

// IsClosedBy reports whether a request closes the class.
func (k *Class) IsClosedBy(request string) bool {
	_, found := slices.BinarySearch(k.closedBy, request)
	return found
}

// Pool counts the classes of a pool, and their executors that are not LOST. It exists
// as long as an executor is in the pool. Executors of no pool are a pool together,
// without a name.
type Pool struct {
	// Name is folded.
	Name string
	// Living counts its executors that are not LOST.
	Living  int
	classes int
}

func compareIndexes(a, b *Class) int { return cmp.Compare(a.index, b.index) }

// classOf returns the class of executors of a kind.
func (ix *Index) classOf(kind *Kind) *Class {
	// Spelled differently a SKU is the same SKU, but another class: so which
	// spelling is shown does not depend on which executor came first.
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
	ix.sections.enter(k)
	k.closedBy = ix.owner.ClosedBy(k.attributes)
	ix.closed.set(k.index, len(k.closedBy) > 0)
	return k
}

// joinKind moves the executor to the class and the shape of its kind; nil for none. It
// enters what is new before it leaves what was, so that an executor that is alone in
// its class does not end it by a change of its record.
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
		ix.sections.leave(class)
		ix.leavePools(class)
	}
	ix.leaveShape(shape, class.host.SKU)
}

// living counts the executors that are not LOST.
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

// joinPools puts the executors of a class into pools, and out of those they were in.
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

// leavePools puts the executors of a class out of their pools.
func (ix *Index) leavePools(k *Class) {
	for _, left := range k.pools {
		left.Living -= k.living()
		if left.classes--; left.classes == 0 {
			delete(ix.pools, left.Name)
		}
	}
	k.pools = nil
}

// SetPools puts the executors of each class into the pools that poolsOf returns for
// one of them, in order of name.
func (ix *Index) SetPools(poolsOf func(constraint.Host) []string) {
	for _, k := range ix.classes {
		ix.joinPools(k, poolsOf(k.host))
	}
	ix.sections.dropPooled()
	ix.kinds++
	ix.freed.forget()
}

// Classes iterates over the classes whose executors have all the attributes, in order
// of index.
func (ix *Index) Classes(attributes Attributes) iter.Seq[*Class] {
	return func(yield func(*Class) bool) {
		for k := range ix.sections.all(ix.sections.whole) {
			if k.attributes.Contain(attributes) && !yield(k) {
				return
			}
		}
	}
}

// Close closes a class to new work on behalf of a request, or ends that; a class is
// closed while any request closes it. Its executors stay where they are in the index,
// and a search skips the class by one bit: closing the whole fleet costs a look at each
// class and a count of each executor. Close reports whether the class changed, and with
// it the standing of its executors.
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
		ix.uncount(e)
		ix.count(e)
	}
	// What refusals and sums say of these executors is out of date.
	ix.kinds++
	ix.moves++
	ix.shutCount++
	ix.freed.forget()
	return true
}
