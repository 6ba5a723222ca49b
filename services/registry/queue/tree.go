package queue

import "iter"

// tree is an ordered set that knows the rank of its elements: insert, delete,
// the element at a rank and the rank of an element each take O(log n).
//
// It is a treap. Its priorities are a hash of a counter, so that equal
// histories make equal trees and nothing here is random.
type tree[T any] struct {
	compare func(a, b T) int
	root    *node[T]
	seed    uint64
}

type node[T any] struct {
	value       T
	priority    uint64
	size        int
	left, right *node[T]
}

func newTree[T any](compare func(a, b T) int) *tree[T] {
	return &tree[T]{compare: compare}
}

func (t *tree[T]) len() int { return t.root.len() }

func (n *node[T]) len() int {
	if n == nil {
		return 0
	}
	return n.size
}

// insert adds a value that is not in the set.
func (t *tree[T]) insert(value T) {
	t.seed++
	low, high := t.split(t.root, value)
	t.root = merge(merge(low, &node[T]{value: value, priority: mix(t.seed), size: 1}), high)
}

// delete removes the value that compares equal, if there is one.
func (t *tree[T]) delete(value T) bool {
	before := t.len()
	t.root = t.without(t.root, value)
	return t.len() < before
}

func (t *tree[T]) without(n *node[T], value T) *node[T] {
	if n == nil {
		return nil
	}
	switch c := t.compare(value, n.value); {
	case c < 0:
		n.left = t.without(n.left, value)
	case c > 0:
		n.right = t.without(n.right, value)
	default:
		return merge(n.left, n.right)
	}
	n.resize()
	return n
}

// rank counts the elements lower than value.
func (t *tree[T]) rank(value T) int {
	rank := 0
	for n := t.root; n != nil; {
		if t.compare(n.value, value) < 0 {
			rank += n.left.len() + 1
			n = n.right
		} else {
			n = n.left
		}
	}
	return rank
}

// at gives the element of a rank; the rank must be in range.
func (t *tree[T]) at(rank int) T {
	n := t.root
	for {
		switch left := n.left.len(); {
		case rank < left:
			n = n.left
		case rank > left:
			rank -= left + 1
			n = n.right
		default:
			return n.value
		}
	}
}

// from gives the elements from a rank on, in order. The set must not change
// meanwhile.
func (t *tree[T]) from(rank int) iter.Seq[T] {
	return func(yield func(T) bool) { t.root.walk(rank, yield) }
}

func (n *node[T]) walk(skip int, yield func(T) bool) bool {
	if n == nil || skip >= n.size {
		return true
	}
	left := n.left.len()
	if skip < left && !n.left.walk(skip, yield) {
		return false
	}
	if skip <= left && !yield(n.value) {
		return false
	}
	return n.right.walk(max(0, skip-left-1), yield)
}

// split parts a tree into what is lower than value and the rest.
func (t *tree[T]) split(n *node[T], value T) (low, high *node[T]) {
	if n == nil {
		return nil, nil
	}
	if t.compare(n.value, value) < 0 {
		n.right, high = t.split(n.right, value)
		n.resize()
		return n, high
	}
	low, n.left = t.split(n.left, value)
	n.resize()
	return low, n
}

// merge joins two trees of which every element of low is lower.
func merge[T any](low, high *node[T]) *node[T] {
	switch {
	case low == nil:
		return high
	case high == nil:
		return low
	case low.priority > high.priority:
		low.right = merge(low.right, high)
		low.resize()
		return low
	}
	high.left = merge(low, high.left)
	high.resize()
	return high
}

func (n *node[T]) resize() { n.size = n.left.len() + n.right.len() + 1 }

// mix is the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
