package match

// heap is a list of which the item before all others is first. The less function
// is called some thousand times a search.
type heap[T any] struct {
	list   []T
	before func(a, b T) bool
}

func (h *heap[T]) init() {
	for i := len(h.list)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// down puts the item at i where it belongs, after it has come to be later in
// order.
func (h *heap[T]) down(i int) {
	moved := h.list[i]
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			break
		}
		if other := child + 1; other < len(h.list) && h.before(h.list[other], h.list[child]) {
			child = other
		}
		if !h.before(h.list[child], moved) {
			break
		}
		h.list[i] = h.list[child]
		i = child
	}
	h.list[i] = moved
}

func (h *heap[T]) push(added T) {
	h.list = append(h.list, added)
	for i := len(h.list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(added, h.list[parent]) {
			break
		}
		h.list[i], h.list[parent] = h.list[parent], added
		i = parent
	}
}

// pop takes out the first.
func (h *heap[T]) pop() {
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	if last > 0 {
		h.down(0)
	}
}
