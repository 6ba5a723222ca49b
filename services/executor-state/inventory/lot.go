package inventory

import "slices"

// lot is the executors of a section that have one shape; where the section's
// batches are spread by an attribute with few values, those that share its value
// too. A batch is matched against lots and buckets, not against executors.
type lot struct {
	section *section
	lotKey
	// size counts its executors, standing by why they may or may not be given
	// work.
	size     int
	standing [standings]int
	// list holds the values of buckets, in no order.
	buckets map[string]*bucket
	list    []*bucket
}

type lotKey struct {
	shape *shape
	// domain is the folded value that spread counts by.
	domain string
}

// bucket is the executors of a lot that may be given work and have the same
// free, newest generation first.
type bucket struct {
	lot *lot
	key string
	// at is its place in the lot's list.
	at int
	// free is as [shape.free] answers it.
	free  []int64
	hosts ordered[*host]
}

// post is where a section keeps an executor that it chooses: its lot and, while
// it may be given work, its bucket.
type post struct {
	lot    *lot
	bucket *bucket
}

// ready counts the executors that may be given work.
func (l *lot) ready() int { return l.standing[open] }

// leave counts an executor less, and ends the lot with its last one.
func (l *lot) leave() {
	l.section.size--
	if l.size--; l.size == 0 {
		l.section.end(l)
	}
}

// enter puts the executor into its bucket, if it may be given work. Free and
// its key are those of the executor.
func (p *post) enter(h *host, free []int64, key []byte) {
	p.lot.standing[h.standing]++
	if h.standing == open {
		p.bucket = p.lot.bucketOf(free, key)
		p.bucket.hosts.insert(h)
	}
}

// bucketOf answers the bucket of what is free, of which the key is given too.
func (l *lot) bucketOf(free []int64, key []byte) *bucket {
	b := l.buckets[string(key)]
	if b == nil {
		b = &bucket{
			lot: l, key: string(key), at: len(l.list), free: slices.Clone(free),
			hosts: ordered[*host]{compare: compareRank},
		}
		l.buckets[b.key] = b
		l.list = append(l.list, b)
	}
	return b
}

// leave undoes enter.
func (p *post) leave(h *host) {
	p.lot.standing[h.standing]--
	b := p.bucket
	if b == nil {
		return
	}
	p.bucket = nil
	if b.hosts.remove(h); b.hosts.len() > 0 {
		return
	}
	list := p.lot.list
	last := len(list) - 1
	moved := list[last]
	list[b.at], moved.at = moved, b.at
	list[last] = nil
	p.lot.list = list[:last]
	delete(p.lot.buckets, b.key)
}
