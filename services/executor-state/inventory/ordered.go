package inventory

import (
	"iter"
	"slices"
)

// nodeSize bounds a node of an ordered set: small enough that moving half of
// one is cheap, large enough that 100,000 items make a few hundred nodes.
const nodeSize = 512

// ordered is a set in the order of compare, which must tell any two items
// apart. It is a tree of two levels: insert and remove move at most a node.
type ordered[T any] struct {
	compare func(a, b T) int
	nodes   [][]T
	size    int
}

func (s *ordered[T]) len() int { return s.size }

// find answers the node that item belongs to and the place in it.
func (s *ordered[T]) find(item T) (node, at int, found bool) {
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

// insert adds an item that is not in the set.
func (s *ordered[T]) insert(item T) {
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
		s.nodes[i] = node[:half:half]
		s.nodes = slices.Insert(s.nodes, i+1, slices.Clone(node[half:]))
	}
}

// append adds an item that is greater than all in the set.
func (s *ordered[T]) append(item T) {
	s.size++
	last := len(s.nodes) - 1
	if last < 0 || len(s.nodes[last]) == nodeSize {
		s.nodes = append(s.nodes, nil)
		last++
	}
	s.nodes[last] = append(s.nodes[last], item)
}

// remove takes out an item that is in the set.
func (s *ordered[T]) remove(item T) {
	i, at, found := s.find(item)
	if !found {
		panic("inventory: an index does not hold what it should")
	}
	s.size--
	s.nodes[i] = slices.Delete(s.nodes[i], at, at+1)
	if len(s.nodes[i]) == 0 {
		s.nodes = slices.Delete(s.nodes, i, i+1)
	}
}

// first answers the least item.
func (s *ordered[T]) first() (item T, ok bool) {
	if s.size == 0 {
		return item, false
	}
	return s.nodes[0][0], true
}

// all gives the items in order. The set must not change meanwhile.
func (s *ordered[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, node := range s.nodes {
			for _, item := range node {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// cursor walks an ordered set that does not change meanwhile.
type cursor[T any] struct {
	set      *ordered[T]
	node, at int
}

// after is a cursor at the first item greater than the given one, which need
// not be in the set.
func (s *ordered[T]) after(item T) cursor[T] {
	c := cursor[T]{set: s}
	if len(s.nodes) == 0 {
		return c
	}
	var found bool
	c.node, c.at, found = s.find(item)
	if found {
		c.at++
	}
	if c.at == len(s.nodes[c.node]) {
		c.node, c.at = c.node+1, 0
	}
	return c
}

// item answers where the cursor stands; ok is false past the end.
func (c *cursor[T]) item() (item T, ok bool) {
	if c.node == len(c.set.nodes) {
		return item, false
	}
	return c.set.nodes[c.node][c.at], true
}

// next moves the cursor on.
func (c *cursor[T]) next() {
	c.at++
	if c.at == len(c.set.nodes[c.node]) {
		c.node, c.at = c.node+1, 0
	}
}
