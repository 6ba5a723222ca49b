package match

import (
	"iter"
	"math"
	"slices"
)

// unlimited is more workers than any batch has.
const unlimited = math.MaxInt64

// scan iterates over the executors that a query allows, block by block.
type scan struct {
	*Index
	query *Query
	// free selects what the scan looks at. If it is set, the scan looks at what is free on
	// listed executors, and leaves out closed classes. Otherwise it looks at what all
	// executors have when idle.
	free   bool
	closed *classSet
	// aligned holds the request for each layout that has executors to look at.
	aligned []*alignedRequest
	// members holds the executors of a narrow selection, by layout in the order of aligned;
	// nil if the scan looks at the blocks of the index.
	members [][]*Executor
	// sku is the number of the requested SKU; 0 for any.
	sku int32
	// only is the shape to which the scan is restricted; nil for all shapes. avoided holds
	// the executors that the scan leaves out.
	only    *Shape
	avoided map[*Executor]bool
}

// scan returns a scan of what executors have free, or of what they have when idle.
func (ix *Index) scan(q *Query, free bool) scan {
	w := scan{Index: ix, query: q, free: free}
	if free && ix.closed.classes > 0 {
		w.closed = &ix.closed
	}
	if q.sku != "" {
		s := ix.skus[q.sku]
		if s == nil {
			return w // a scan without executors
		}
		w.sku = s.number
	}
	if members, narrow := w.narrow(); narrow {
		w.group(members)
		return w
	}
	for _, l := range ix.layouts {
		if a := ix.align(l, q); a != nil {
			w.aligned = append(w.aligned, a)
		}
	}
	return w
}

// narrow returns the executors of the selection, and reports whether the selection is
// narrow.
func (w *scan) narrow() (list []*Executor, narrow bool) {
	selection := w.query.selection
	if selection.wholeFleet() || selection.classes > w.Limits.Narrow {
		return nil, false
	}
	for k := range w.selections.all(selection) {
		if len(list)+len(k.executors) > w.Limits.Narrow {
			return nil, false
		}
		list = append(list, k.executors...)
	}
	return list, true
}

// group makes the scan look only at some executors, by layout.
func (w *scan) group(members []*Executor) {
	w.Work += len(members) * workOfMember
	slices.SortFunc(members, Compare)
	w.members = [][]*Executor{}
	byLayout := map[*layout][]*Executor{}
	var layouts []*layout
	for _, e := range members {
		l := e.shape.layout
		if byLayout[l] == nil {
			layouts = append(layouts, l)
		}
		byLayout[l] = append(byLayout[l], e)
	}
	for _, l := range layouts {
		if a := w.align(l, w.query); a != nil {
			w.aligned, w.members = append(w.aligned, a), append(w.members, byLayout[l])
		}
	}
}

// blocks iterates over the blocks in which a worker may fit. For a narrow selection it
// makes these blocks.
func (w *scan) blocks() iter.Seq2[*alignedRequest, *block] {
	return func(yield func(*alignedRequest, *block) bool) {
		for i, a := range w.aligned {
			list := a.layout.idle.blocks
			if w.free {
				list = a.layout.free.blocks
			}
			if w.members != nil {
				w.Work += len(w.members[i]) * workOfMember
				list = w.blockOf(w.members[i])
			}
			for _, b := range list {
				w.Work += workOfBlock
				b.tighten()
				if w.sku != 0 && (w.sku < b.lowSKU || b.highSKU < w.sku) || !a.fits(b.high) {
					continue
				}
				if !yield(a, b) {
					return
				}
			}
		}
	}
}

// blockOf returns a block of executors of one layout. It returns no block if the block
// would be empty.
func (w *scan) blockOf(executors []*Executor) []*block {
	b := newBlock(position{}, executors[0].shape.layout.free.width)
	b.loose, b.sums = true, nil
	for _, e := range executors {
		point := e.shape.idle
		if w.free {
			point = e.free
		}
		if !w.free || e.listed {
			b.append(e, point)
		}
	}
	if len(b.executors) == 0 {
		return nil
	}
	return []*block{b}
}

// fitting iterates over the places of the executors in a block that the query allows and
// on which a worker fits.
func (w *scan) fitting(a *alignedRequest, b *block) iter.Seq[int] {
	return func(yield func(int) bool) {
		w.Work += len(b.executors)
		selection := w.query.selection
		whole, width := selection.wholeFleet(), len(b.low)
		for at := range b.traits {
			t := &b.traits[at]
			switch {
			case w.sku != 0 && t.sku != w.sku, !whole && !selection.has(t.class),
				w.closed != nil && w.closed.has(t.class), w.only != nil && b.shapes[at] != w.only:
			case !a.fits(b.amounts[at*width : (at+1)*width]):
			case w.avoided != nil && w.avoided[b.executors[at]]:
			case !yield(at):
				return
			}
		}
	}
}
