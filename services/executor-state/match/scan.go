package match

import (
	"iter"
	"math"
	"slices"
)

// endless is more workers than any batch has.
const endless = math.MaxInt64

// scan looks at the executors that a query may choose, by the blocks of fields.
type scan struct {
	*Index
	query *Query
	// open: it looks at what is free, of executors that may be given work; otherwise at
	// what all have when they are idle. Closed are the classes that it leaves out then.
	open   bool
	closed *classSet
	aims   []*aim
	// members are the executors of a section that has few, by form in the order of
	// aims; nil where blocks are looked at.
	members [][]*Executor
	// sku is the number of the only one asked for, 0 for any; none says that
	// nobody has it.
	sku  int32
	none bool
	// only is the one shape that is looked at, nil for all; avoided are executors
	// that are not.
	only    *Shape
	avoided map[*Executor]bool
}

// scan looks at what executors have free if open, or else at what they have.
func (ix *Index) scan(q *Query, open bool) scan {
	w := scan{Index: ix, query: q, open: open}
	if open && ix.closed.classes > 0 {
		w.closed = &ix.closed
	}
	if q.sku != "" {
		s := ix.skus[q.sku]
		if w.none = s == nil; !w.none {
			w.sku = s.number
		}
	}
	if w.none {
		return w
	}
	if members, narrow := w.few(); narrow {
		w.group(members)
		return w
	}
	for _, f := range ix.forms {
		if a := ix.aimAt(f, q.resources, q.role); a != nil {
			w.aims = append(w.aims, a)
		}
	}
	return w
}

// group puts the executors of a section that has few together by form.
func (w *scan) group(members []*Executor) {
	w.members = [][]*Executor{}
	at := map[*form]int{}
	for _, h := range members {
		of := h.shape.form
		i, known := at[of]
		if !known {
			i = -1
			if a := w.aimAt(of, w.query.resources, w.query.role); a != nil {
				i = len(w.aims)
				w.aims, w.members = append(w.aims, a), append(w.members, nil)
			}
			at[of] = i
		}
		if i >= 0 {
			w.members[i] = append(w.members[i], h)
		}
	}
}

// blocks gives the blocks in which a worker may fit. Those of a section of few
// executors are made for the scan.
func (w *scan) blocks() iter.Seq2[*aim, *block] {
	return func(yield func(*aim, *block) bool) {
		if w.none {
			return
		}
		for i, a := range w.aims {
			f := &a.form.all
			if w.open {
				f = &a.form.open
			}
			list := f.blocks
			if w.members != nil {
				w.Spent += len(w.members[i]) * workOfMember
				list = f.gather(w.members[i], w.open)
			}
			for _, b := range list {
				w.Spent += workOfBlock
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

// few returns the executors of a section that has few.
func (w *scan) few() (list []*Executor, narrow bool) {
	section := w.query.section
	if section.whole() || section.classes > w.Limits.Narrow {
		return nil, false
	}
	for k := range w.sections.all(section) {
		if len(list)+len(k.executors) > w.Limits.Narrow {
			return nil, false
		}
		list = append(list, k.executors...)
	}
	w.Spent += len(list) * workOfMember
	slices.SortFunc(list, Compare)
	return list, true
}

// gather makes a block of executors of the field's form, of those that are open if
// so asked.
func (f *field) gather(executors []*Executor, opened bool) []*block {
	b := newBlock(spot{}, f.width)
	b.loose, b.sums = true, nil
	for _, h := range executors {
		point := h.shape.idle
		if opened {
			point = h.free
		}
		if !opened || h.listed {
			b.executors, b.traits, b.amounts = append(b.executors, h), append(b.traits, h.traits()), append(b.amounts, point...)
		}
	}
	if len(b.executors) == 0 {
		return nil
	}
	return []*block{b}
}

// fitting gives the places in a block of the executors that are asked for, and
// that a worker fits on.
func (w *scan) fitting(a *aim, b *block) iter.Seq[int] {
	return func(yield func(int) bool) {
		w.Spent += len(b.executors)
		section := w.query.section
		whole, width := section.whole(), len(b.low)
		for at := range b.traits {
			k := &b.traits[at]
			switch {
			case w.sku != 0 && k.sku != w.sku, !whole && !section.has(k.class), w.closed != nil && w.closed.has(k.class), w.only != nil && k.shape != w.only.index:
			case !a.fits(b.amounts[at*width : (at+1)*width]):
			case w.avoided != nil && w.avoided[b.executors[at]]:
			case !yield(at):
				return
			}
		}
	}
}
