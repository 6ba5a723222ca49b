package inventory

import (
	"iter"
	"math"
	"slices"
)

// limits are how far things go before they are done in another way.
type limits struct {
	// block is blockSize, narrow is up to how many executors of a section are
	// looked at one by one, without bounds.
	block, narrow int
	// cycle is cycleWork, answer is answerBytes.
	cycle, answer int
}

var defaultLimits = limits{block: blockSize, narrow: blockSize, cycle: cycleWork, answer: answerBytes}

// endless is more workers than any batch has.
const endless = math.MaxInt64

// walk looks at the executors that a query may choose, by the blocks of fields.
type walk struct {
	*Core
	query *query
	// open: it looks at what is free, of executors that may be given work; otherwise at
	// what all have when they are idle. Closed are the classes that it leaves out then.
	open   bool
	closed *classSet
	aims   []*aim
	// teams are the executors of a section that has few, by form in the order of
	// aims; nil where blocks are looked at.
	teams [][]*host
	// sku is the number of the only one asked for, 0 for any; none says that
	// nobody has it.
	sku  int32
	none bool
	// only is the one shape that is looked at, nil for all; avoided are executors
	// that are not.
	only    *shape
	avoided map[*host]bool
}

// walk looks at what executors have free if open, or else at what they have.
func (c *Core) walk(q *query, open bool) walk {
	w := walk{Core: c, query: q, open: open}
	if open && c.disables.closed.classes > 0 {
		w.closed = &c.disables.closed
	}
	if q.sku != "" {
		s := c.skus[q.sku]
		if w.none = s == nil; !w.none {
			w.sku = s.number
		}
	}
	if w.none {
		return w
	}
	if members, narrow := w.members(); narrow {
		w.team(members)
		return w
	}
	for _, f := range c.forms {
		if a := c.aimAt(f, q.resources, q.role); a != nil {
			w.aims = append(w.aims, a)
		}
	}
	return w
}

// team puts the executors of a section that has few together by form.
func (w *walk) team(members []*host) {
	w.teams = [][]*host{}
	at := map[*form]int{}
	for _, h := range members {
		of := h.shape.form
		i, known := at[of]
		if !known {
			i = -1
			if a := w.aimAt(of, w.query.resources, w.query.role); a != nil {
				i = len(w.aims)
				w.aims, w.teams = append(w.aims, a), append(w.teams, nil)
			}
			at[of] = i
		}
		if i >= 0 {
			w.teams[i] = append(w.teams[i], h)
		}
	}
}

// blocks gives the blocks in which a worker may fit. Those of a section of few
// executors are made for the walk.
func (w *walk) blocks() iter.Seq2[*aim, *block] {
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
			if w.teams != nil {
				w.spent += len(w.teams[i]) * workOfMember
				list = f.gather(w.teams[i], w.open)
			}
			for _, b := range list {
				w.spent += workOfBlock
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

// members answers the executors of a section that has few.
func (w *walk) members() (list []*host, narrow bool) {
	section := w.query.section
	if section.whole() || section.classes > w.limits.narrow {
		return nil, false
	}
	for k := range w.sections.all(section) {
		if len(list)+len(k.hosts) > w.limits.narrow {
			return nil, false
		}
		list = append(list, k.hosts...)
	}
	w.spent += len(list) * workOfMember
	slices.SortFunc(list, compareRank)
	return list, true
}

// gather makes a block of executors of the field's form, of those that are open if
// so asked.
func (f *field) gather(hosts []*host, opened bool) []*block {
	b := newBlock(spot{}, f.width)
	b.loose, b.sums = true, nil
	for _, h := range hosts {
		point := h.shape.idle
		if opened {
			point = h.free
		}
		if !opened || h.listed {
			b.hosts, b.traits, b.amounts = append(b.hosts, h), append(b.traits, h.traits()), append(b.amounts, point...)
		}
	}
	if len(b.hosts) == 0 {
		return nil
	}
	return []*block{b}
}

// fitting gives the places in a block of the executors that are asked for, and
// that a worker fits on.
func (w *walk) fitting(a *aim, b *block) iter.Seq[int] {
	return func(yield func(int) bool) {
		w.spent += len(b.hosts)
		section := w.query.section
		whole, width := section.whole(), len(b.low)
		for at := range b.traits {
			k := &b.traits[at]
			switch {
			case w.sku != 0 && k.sku != w.sku, !whole && !section.has(k.class), w.closed != nil && w.closed.has(k.class), w.only != nil && k.shape != w.only.index:
			case !a.fits(b.amounts[at*width : (at+1)*width]):
			case w.avoided != nil && w.avoided[b.hosts[at]]:
			case !yield(at):
				return
			}
		}
	}
}
