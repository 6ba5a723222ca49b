package core

import (
	"iter"
	"slices"
)

// nodeSize is the maximum number of items in a node of an ordered set. With this size
// moving half of a node is cheap, and a set of 100,000 items has a few hundred nodes.
const nodeSize = 512

// Ordered is a set in the order of a comparison function, which must not return 0 for two
// different items. It is a tree of two levels: Insert and Delete move the items of at
// most one node. An iterator is valid as long as the set does not change.
type Ordered[T any] struct {
	compare func(a, b T) int
	nodes   [][]T // no node is empty, except the only node of an empty set
	size    int
}

// NewOrdered returns an empty set.
func NewOrdered[T any](compare func(a, b T) int) Ordered[T] { return Ordered[T]{compare: compare} }

// Len returns the number of items.
func (s *Ordered[T]) Len() int { return s.size }

// find returns the node to which item belongs and the place in this node. In the last
// node, the place may be after the last item.
func (s *Ordered[T]) find(item T) (node, at int, found bool) {
	if s.size == 0 {
		return 0, 0, false
	}
	node, _ = slices.BinarySearchFunc(s.nodes, item, func(n []T, item T) int {
		return s.compare(n[len(n)-1], item)
	})
	if node == len(s.nodes) {
		node--
	}
	at, found = slices.BinarySearchFunc(s.nodes[node], item, s.compare)
	return node, at, found
}

// Insert adds an item that is not in the set.
func (s *Ordered[T]) Insert(item T) {
	if len(s.nodes) == 0 {
		s.nodes = [][]T{make([]T, 0, 4)}
	}
	i, at, _ := s.find(item)
	s.size++
	node := slices.Insert(s.nodes[i], at, item)
	s.nodes[i] = node
	if len(node) > nodeSize {
		half := len(node) / 2
		if at == nodeSize && i == len(s.nodes)-1 {
			half = nodeSize // so that items inserted in order fill their nodes
		}
		s.nodes[i] = node[:half:half]
		s.nodes = slices.Insert(s.nodes, i+1, slices.Clone(node[half:]))
	}
}

// Delete removes the item that compares equal to item, and reports whether the set had
// such an item.
func (s *Ordered[T]) Delete(item T) bool {
	i, at, found := s.find(item)
	if !found {
		return false
	}
	s.size--
	s.nodes[i] = slices.Delete(s.nodes[i], at, at+1)
	if len(s.nodes[i]) == 0 && len(s.nodes) > 1 {
		s.nodes = slices.Delete(s.nodes, i, i+1)
	}
	return true
}

// First returns the least item. It returns false if the set is empty.
func (s *Ordered[T]) First() (item T, ok bool) {
	if s.size == 0 {
		return item, false
	}
	return s.nodes[0][0], true
}

// At returns the item with the given rank, which must be at least 0 and below Len.
func (s *Ordered[T]) At(rank int) T {
	i := 0
	for ; rank >= len(s.nodes[i]); i++ {
		rank -= len(s.nodes[i])
	}
	return s.nodes[i][rank]
}

// Rank returns the number of items that are lower than the given item. The given item
// need not be in the set.
func (s *Ordered[T]) Rank(item T) int {
	i, rank, _ := s.find(item)
	for _, node := range s.nodes[:i] {
		rank += len(node)
	}
	return rank
}

// From returns the items that are not lower than the given item, in order. The given item
// need not be in the set.
func (s *Ordered[T]) From(item T) iter.Seq[T] {
	return func(yield func(T) bool) {
		i, at, _ := s.find(item)
		s.yieldFrom(i, at, yield)
	}
}

// All returns the items in order.
func (s *Ordered[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) { s.yieldFrom(0, 0, yield) }
}

func (s *Ordered[T]) yieldFrom(node, at int, yield func(T) bool) {
	for ; node < len(s.nodes); node, at = node+1, 0 {
		for _, item := range s.nodes[node][at:] {
			if !yield(item) {
				return
			}
		}
	}
}

// Remove removes an item. It panics if the item is not in the set.
func (s *Ordered[T]) Remove(item T) {
	if !s.Delete(item) {
		panic("core: an item that should be in an index is missing")
	}
}
