package inventory

// heap is candidates, the one that comes before all others first. It is spelled
// out here, for a pass compares some ten thousand candidates an entry.
type heap struct {
	list []*candidate
	pack bool
}

func (h *heap) init() {
	for i := len(h.list)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// down puts the candidate at i where it belongs, after it has come to be later
// in order.
func (h *heap) down(i int) {
	moved := h.list[i]
	for {
		child := 2*i + 1
		if child >= len(h.list) {
			break
		}
		if other := child + 1; other < len(h.list) && before(h.list[other], h.list[child], h.pack) {
			child = other
		}
		if !before(h.list[child], moved, h.pack) {
			break
		}
		h.list[i] = h.list[child]
		i = child
	}
	h.list[i] = moved
}

// push adds a candidate that does not come before the first.
func (h *heap) push(added *candidate) {
	h.list = append(h.list, added)
	for i := len(h.list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !before(added, h.list[parent], h.pack) {
			break
		}
		h.list[i], h.list[parent] = h.list[parent], added
		i = parent
	}
}

// pop takes out the first.
func (h *heap) pop() {
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	if last > 0 {
		h.down(0)
	}
}
