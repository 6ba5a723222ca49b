package inventory

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"time"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// class is the executors of one kind: equal SKU, attributes and capacity. A
// batch is matched against classes and buckets, not against executors.
type class struct {
	key string
	// shape is what a batch with sameShape must share: SKU and capacity.
	shape string
	// host is any of its executors, without an id; its pools are kept up with
	// the records of pools, and lostAfter with them.
	host      constraint.Host
	lostAfter time.Duration
	// resources is the capacity of each; names are its resources in order and
	// capacity their amounts.
	resources resource.Vector
	names     []string
	capacity  []int64
	// total are the sums over all executors that may be given work, one for
	// each name, shared with the other classes.
	total []*sum
	// size counts its executors in whatever state, ready those in a bucket,
	// states all by state.
	size, ready int
	states      [5]int
	buckets     map[string]*bucket
	scratch     []int64
	keyBuf      []byte
}

// bucket is the executors of a class that may be given work and have the same
// free, newest generation first.
type bucket struct {
	class *class
	key   string
	free  []int64
	hosts ordered[*host]
}

func (c *Core) joinClass(h *host) {
	shape := constraint.Fold(h.executor.SKU) + "|" + h.executor.Resources.Canonical()
	key := classKey(shape, h.executor.Attributes)
	k := c.classes[key]
	if k == nil {
		k = &class{
			key: key, shape: shape, buckets: map[string]*bucket{},
			host:      constraint.Host{SKU: h.executor.SKU, Attributes: h.executor.Attributes},
			resources: h.executor.Resources,
			names:     h.executor.Resources.Names(),
		}
		for _, name := range k.names {
			k.capacity = append(k.capacity, h.executor.Resources[name])
			if c.total[name] == nil {
				c.total[name] = &sum{}
			}
			k.total = append(k.total, c.total[name])
		}
		k.host.Pools = c.poolsOf(k.host)
		k.lostAfter = c.lostAfter(k.host.Pools)
		c.classes[key] = k
	}
	k.size++
	h.class = k
}

func (c *Core) leaveClass(h *host) {
	h.class.size--
	if h.class.size == 0 {
		delete(c.classes, h.class.key)
	}
	h.class = nil
}

func classKey(shape string, attributes map[string]string) string {
	return shape + "|" + attributesKey(attributes)
}

// free answers capacity − used in the order of names, valid until the next
// call; not ok when more is used than there is.
func (k *class) free(used resource.Vector) (free []int64, ok bool) {
	k.scratch = append(k.scratch[:0], k.capacity...)
	for name, amount := range used {
		i, found := slices.BinarySearch(k.names, name)
		if !found || k.scratch[i] < amount {
			return nil, false
		}
		k.scratch[i] -= amount
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
			class: k, key: string(k.keyBuf), free: slices.Clone(free),
			hosts: ordered[*host]{compare: compareRank},
		}
		k.buckets[b.key] = b
	}
	return b
}

func (b *bucket) insert(h *host) {
	b.hosts.insert(h)
	b.class.ready++
	for i, amount := range b.free {
		b.class.total[i].add(uint64(amount))
	}
}

func (b *bucket) remove(h *host) {
	b.hosts.remove(h)
	b.class.ready--
	for i, amount := range b.free {
		b.class.total[i].subtract(uint64(amount))
	}
	if b.hosts.len() == 0 {
		delete(b.class.buckets, b.key)
	}
}

// sum is a sum of amounts that no fleet overflows, and that comes back to the
// same value when what was added is taken away.
type sum struct{ high, low uint64 }

func (s *sum) add(n uint64) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, n, 0)
	s.high += carry
}

func (s *sum) subtract(n uint64) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, n, 0)
	s.high -= borrow
}

// saturated answers the sum, at most the largest int64.
func (s *sum) saturated() int64 {
	if s.high > 0 || s.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.low)
}

func (s *sum) float() float64 { return float64(s.high)*(1<<64) + float64(s.low) }
