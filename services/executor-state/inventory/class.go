package inventory

import (
	"encoding/binary"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// class is the executors of one kind: equal SKU, attributes, capacity and
// shares set aside for roles. A batch is matched against classes and buckets,
// not against executors.
type class struct {
	key string
	// shape is what a batch with sameShape must share: SKU, capacity, shares.
	shape string
	sku   *sku
	// host is any of its executors, without an id; its pools are kept up with
	// the records of pools, and lostAfter with them.
	host      constraint.Host
	lostAfter time.Duration
	// resources is the capacity of each; names are its resources in order and
	// capacity their amounts.
	resources resource.Vector
	names     []string
	capacity  []int64
	// shares are what is set aside of capacity, by role.
	shares []share
	// total are the sums over all executors that may be given work, one for
	// each name, shared with the other classes.
	total []*sum
	// size counts its executors, standing by why they may or may not be given
	// work, use by what they are used for, shut those that are disabled.
	size     int
	standing [standings]int
	use      [uses]int
	shut     int
	// list holds the values of buckets, in no order.
	buckets map[string]*bucket
	list    []*bucket
	scratch []int64
	keyBuf  []byte
}

// bucket is the executors of a class that may be given work and have the same
// free, newest generation first.
type bucket struct {
	class *class
	key   string
	// at is its place in the class's list.
	at int
	// free is, for each of the class's names, what anybody may have; and then
	// for each of its shares what only that role may have besides.
	free  []int64
	hosts ordered[*host]
}

// ready counts the executors that may be given work.
func (k *class) ready() int { return k.standing[open] }

// classOf answers the class that an executor belongs to.
func (c *Core) classOf(e *model.Executor) *class {
	shares := sharesOf(e)
	shape := constraint.Fold(e.SKU) + "|" + e.Resources.Canonical() + sharesKey(shares)
	// Spelled differently a SKU is the same SKU, but another class: so which
	// spelling is shown does not hang on who came first.
	key := e.SKU + "|" + shape + "|" + attributesKey(e.Attributes)
	if k := c.classes[key]; k != nil {
		return k
	}
	k := &class{
		key: key, shape: shape, sku: c.skuOf(constraint.Fold(e.SKU)), buckets: map[string]*bucket{},
		host:      constraint.Host{SKU: e.SKU, Attributes: e.Attributes},
		resources: e.Resources,
		names:     e.Resources.Names(),
		shares:    shares,
	}
	for _, name := range k.names {
		k.capacity = append(k.capacity, e.Resources[name])
		if c.total[name] == nil {
			c.total[name] = &sum{}
		}
		k.total = append(k.total, c.total[name])
	}
	for i := range k.shares {
		k.shares[i].amounts = amountsOf(k.shares[i].share, k.names)
	}
	k.host.Pools = c.poolsOf(k.host)
	k.lostAfter = c.lostAfter(k.host.Pools)
	c.classes[key] = k
	k.sku.classes[key] = k
	c.roster.add(k)
	return k
}

// joinClass moves the host to the class of its executor; nil for none. The new
// class is found first, so that an executor that is alone in its class does not
// end it by a change of its record.
func (c *Core) joinClass(h *host, e *model.Executor) {
	last := h.class
	h.class = nil
	if e != nil {
		h.class = c.classOf(e)
		h.class.size++
	}
	if last == nil {
		return
	}
	last.size--
	if last.size == 0 {
		delete(c.classes, last.key)
		delete(last.sku.classes, last.key)
		c.dropSKU(last.sku)
		c.roster.end()
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

// free answers what is free on an executor that holds so much, as in
// bucket.free. It is valid until the next call; not ok when more is used than
// there is, or than may be used without what is set aside for others.
func (k *class) free(h *hold) (free []int64, ok bool) {
	k.scratch = append(k.scratch[:0], k.capacity...)
	for name, amount := range h.used {
		i, found := slices.BinarySearch(k.names, name)
		if !found || k.scratch[i] < amount {
			return nil, false
		}
		k.scratch[i] -= amount
	}
	for _, share := range k.shares {
		used := h.byRole[share.role]
		for i, amount := range share.amounts {
			left := max(0, amount-used[k.names[i]])
			k.scratch = append(k.scratch, left)
			k.scratch[i] -= left
			if k.scratch[i] < 0 {
				return nil, false
			}
		}
	}
	return k.scratch, true
}

func (k *class) bucketOf(free []int64) *bucket {
	k.keyBuf = k.keyBuf[:0]
	for _, amount := range free {
		k.keyBuf = binary.BigEndian.AppendUint64(k.keyBuf, uint64(amount))
	}
	b := k.buckets[string(k.keyBuf)]
	if b == nil {
		b = &bucket{
			class: k, key: string(k.keyBuf), at: len(k.list), free: slices.Clone(free),
			hosts: ordered[*host]{compare: compareRank},
		}
		k.buckets[b.key] = b
		k.list = append(k.list, b)
	}
	return b
}

func (b *bucket) insert(h *host) {
	b.hosts.insert(h)
	for i, amount := range b.free {
		b.class.total[i%len(b.class.names)].add(uint64(amount))
	}
}

func (b *bucket) remove(h *host) {
	b.hosts.remove(h)
	for i, amount := range b.free {
		b.class.total[i%len(b.class.names)].subtract(uint64(amount))
	}
	if b.hosts.len() > 0 {
		return
	}
	list := b.class.list
	last := len(list) - 1
	moved := list[last]
	list[b.at], moved.at = moved, b.at
	list[last] = nil
	b.class.list = list[:last]
	delete(b.class.buckets, b.key)
}
