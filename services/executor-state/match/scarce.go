package match

import (
	"cmp"
	"slices"

	"berth.dev/pkg/resource"
)

// The scarcest resource of a request is the requested one of which the executors
// that match have the least free in proportion to the request: the one that runs out
// first if more such workers come. An executor matches here if a worker fits on it
// now. What is free is added up once for an entry, when its executors are first put
// in order: placing its workers does not change the order of resources, so the
// executors of a gang depend on nothing but the inventory before it.

// ByScarcity returns the resources of which a worker requests some, the scarcest
// first, of equals in order of name. Free tells how much of one there is.
func ByScarcity(request resource.Vector, free func(name string) float64) []string {
	names := slices.DeleteFunc(request.Names(), func(name string) bool { return request[name] <= 0 })
	if len(names) < 2 {
		return names
	}
	ratios := make(map[string]float64, len(names))
	for _, name := range names {
		ratios[name] = free(name) / float64(request[name])
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(ratios[a], ratios[b]) })
	return names
}

// scarcity returns the requested resources, the scarcest first, as they were when
// the search first asked.
func (s *search) scarcity() []string {
	if s.scarce == nil {
		var free tally
		s.scarce = ByScarcity(s.query.resources, func(name string) float64 {
			if free == nil {
				free = s.free()
			}
			return free[name].float()
		})
	}
	return s.scarce
}

// tally is sums of what is free of the resources that a query requests, over the
// executors on which a worker fits.
type tally map[string]*sum

func (q *Query) newTally() tally {
	t := tally{}
	for name, amount := range q.resources {
		if amount > 0 {
			t[name] = &sum{}
		}
	}
	return t
}

// counter adds executors of one form to a tally.
type counter struct {
	*aim
	// sums are those of the form's resources, in their order; nil for those that are
	// not requested.
	sums []*sum
}

func (t tally) counter(a *aim) *counter {
	k := &counter{aim: a, sums: make([]*sum, len(a.need))}
	for i, name := range a.form.names {
		k.sums[i] = t[name]
	}
	return k
}

// add counts the point of an executor on which a worker fits; remove takes it away.
func (k *counter) add(point []int64) {
	for i, sum := range k.sums {
		if sum != nil {
			sum.add(uint64(k.free(point, i)))
		}
	}
}

func (k *counter) remove(point []int64) {
	for i, sum := range k.sums {
		if sum != nil {
			sum.subtract(uint64(k.free(point, i)))
		}
	}
}

// free adds up what is free for the search. Of a section with many executors the
// query keeps the sums, and follows the executors that change.
func (s *search) free() tally {
	w := s.scan
	w.avoided = nil
	q := s.query
	if w.none || w.members != nil || q.section.whole() {
		q.tally = nil
	} else if ix := s.Index; q.tally != nil && q.tallied == ix.kinds && q.tallyAt >= ix.moved.first {
		q.follow(ix)
	} else {
		q.tally = nil
	}
	t := q.tally
	if t == nil {
		t = w.addUp()
		if !w.none && w.members == nil && !q.section.whole() {
			q.tally, q.tallied, q.tallyAt, q.counters = t, s.kinds, s.moved.next(), map[*form]*counter{}
		}
	}
	if len(s.avoided) == 0 {
		return t
	}
	rest := q.newTally()
	for name := range rest {
		*rest[name] = *t[name]
	}
	for h := range s.avoided {
		if h.standing != Open || !q.hasSKU(h.shape.sku) || !q.section.has(h.class.index) {
			continue
		}
		for _, a := range w.aims {
			if a.form == h.shape.form && a.fits(h.free) {
				rest.counter(a).remove(h.free)
			}
		}
	}
	return rest
}

// addUp adds up what is free on all executors on which a worker fits. All executors
// of a block are added at once where a worker fits on each.
func (w *scan) addUp() tally {
	t := w.query.newTally()
	for a, b := range w.blocks() {
		if !w.takesAll(a, b) {
			k := t.counter(a)
			for at := range w.fitting(a, b) {
				k.add(b.point(at))
			}
			continue
		}
		for i, name := range a.form.names {
			if sum := t[name]; sum != nil {
				sum.join(b.sums[i])
				if a.share > 0 {
					sum.join(b.sums[a.share*len(a.need)+i])
				}
			}
		}
	}
	return t
}

// takesAll reports whether a worker fits on every executor of a block, as its bounds
// tell.
func (w *scan) takesAll(a *aim, b *block) bool {
	return b.sums != nil && w.closed == nil && w.query.section.whole() && (w.sku == 0 || b.lowSKU == b.highSKU) && a.fits(b.low)
}

// moved is the executors that came among those that may be given work, with what
// they have free, and those that left: the newest maxMoved at least. An executor
// that changes what it has free leaves and comes. Sums over a section follow it, so
// that the executors of the section are looked at once and not for each entry.
type moved struct {
	// first is the number of the first in the list.
	first uint64
	list  []move
	// points is where the next amounts are kept.
	points []int64
}

type move struct {
	form       *form
	class, sku int32
	point      []int64
	came       bool
}

const (
	maxMoved  = 1 << 12
	movedSlab = 1 << 12
)

// next is the number of what comes next.
func (m *moved) next() uint64 { return m.first + uint64(len(m.list)) }

func (m *moved) note(h *Executor, came bool) {
	if len(m.list) == 2*maxMoved {
		m.list = append(m.list[:0], m.list[maxMoved:]...)
		m.first += maxMoved
	}
	if len(m.points) < len(h.free) {
		m.points = make([]int64, movedSlab+len(h.free))
	}
	n := copy(m.points, h.free)
	m.list = append(m.list, move{h.shape.form, h.class.index, h.shape.sku.number, m.points[:n:n], came})
	m.points = m.points[n:]
}

// follow brings the sums of a query up to now. Indexes of classes and forms are
// those of now, for no executor has changed what it is since.
func (q *Query) follow(ix *Index) {
	news := ix.moved.list[q.tallyAt-ix.moved.first:]
	ix.Spent += workOfNote * len(news)
	only := int32(0)
	if s := ix.skus[q.sku]; q.sku != "" && s != nil {
		only = s.number
	}
	for _, m := range news {
		if !q.section.has(m.class) || only != 0 && m.sku != only {
			continue
		}
		k, known := q.counters[m.form]
		if !known {
			if a := ix.aimAt(m.form, q.resources, q.role); a != nil {
				k = q.tally.counter(a)
			}
			q.counters[m.form] = k
		}
		switch {
		case k == nil || !k.fits(m.point):
		case m.came:
			k.add(m.point)
		default:
			k.remove(m.point)
		}
	}
	q.tallyAt = ix.moved.next()
}
