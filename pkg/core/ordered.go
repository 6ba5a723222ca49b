// Package core holds what the cores of several services are made of.
//
// It promises that nothing in it depends on anything but its arguments: equal calls
// leave equal states, so a core that is built of it stays deterministic. Nothing in it
// is safe for concurrent use; one goroutine owns each core.
package core

import (
	"iter"
	"slices"
)

// nodeSize bounds a node of an ordered set: small enough that moving half of one is
// cheap, large enough that 100,000 items make a few hundred nodes.
const nodeSize = 512

// Ordered is a set in the order of a comparison, which must tell any two items apart.
// It is a tree of two levels: Insert and Delete move at most a node. An iterator is
// valid as long as the set does not change.
type Ordered[T any] struct {
	compare func(a, b T) int
	nodes   [][]T
	size    int
}

// NewOrdered returns an empty set.
func NewOrdered[T any](compare func(a, b T) int) Ordered[T] { return Ordered[T]{compare: compare} }

// Len returns the number of items.
func (s *Ordered[T]) Len() int { return s.size }

// find returns the node that item belongs to and the place in it, which may be behind
// the last item of the last node.
func (s *Ordered[T]) find(item T) (node, at int, found bool) {
	node, _ = slices.BinarySearchFunc(s.nodes, item, func(n []T, item T) int {
		return s.compare(n[len(n)-1], item)
	})
	if node == len(s.nodes) {
		if node == 0 {
			return 0, 0, false
		}
		node--
	}
	at, found = slices.BinarySearchFunc(s.nodes[node], item, s.compare)
	return node, at, found
}

// Insert adds an item that is not in the set.
func (s *Ordered[T]) Insert(item T) {
	s.size++
	if len(s.nodes) == 0 {
		s.nodes = append(s.nodes, append(make([]T, 0, 4), item))
		return
	}
	i, at, _ := s.find(item)
	node := slices.Insert(s.nodes[i], at, item)
	s.nodes[i] = node
	if len(node) > nodeSize {
		half := len(node) / 2
		if at == nodeSize && i == len(s.nodes)-1 {
			half = nodeSize // items that come in order fill their nodes
		}
		s.nodes[i] = node[:half:half]
		s.nodes = slices.Insert(s.nodes, i+1, slices.Clone(node[half:]))
	}
}

// Delete removes the item that compares equal, and reports whether there was one.
func (s *Ordered[T]) Delete(item T) bool {
	i, at, found := s.find(item)
	if !found {
		return false
	}
	s.size--
	s.nodes[i] = slices.Delete(s.nodes[i], at, at+1)
	if len(s.nodes[i]) == 0 {
		s.nodes = slices.Delete(s.nodes, i, i+1)
	}
	return true
}

// First returns the least item, and false if the set is empty.
func (s *Ordered[T]) First() (item T, ok bool) {
	if s.size == 0 {
		return item, false
	}
	return s.nodes[0][0], true
}

// At returns the item of a rank, which must be at least 0 and below Len.
func (s *Ordered[T]) At(rank int) T {
	i := 0
	for ; rank >= len(s.nodes[i]); i++ {
		rank -= len(s.nodes[i])
	}
	return s.nodes[i][rank]
}

// Rank returns how many items are lower than the given one, which need not be in the
// set.
func (s *Ordered[T]) Rank(item T) int {
	i, rank, _ := s.find(item)
	for _, node := range s.nodes[:i] {
		rank += len(node)
	}
	return rank
}

// From returns the items from the given one on, which need not be in the set.
func (s *Ordered[T]) From(item T) iter.Seq[T] {
	return func(yield func(T) bool) {
		i, at, _ := s.find(item)
		s.walk(i, at, yield)
	}
}

// All returns the items in order.
func (s *Ordered[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) { s.walk(0, 0, yield) }
}

func (s *Ordered[T]) walk(node, at int, yield func(T) bool) {
	for ; node < len(s.nodes); node, at = node+1, 0 {
		for _, item := range s.nodes[node][at:] {
			if !yield(item) {
				return
			}
		}
	}
}

// Remove removes an item that must be in the set, and panics otherwise.
func (s *Ordered[T]) Remove(item T) {
	if !s.Delete(item) {
		panic("core: an index does not hold what it should")
	}
}
