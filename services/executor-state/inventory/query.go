package inventory

import (
	"cmp"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// roster is the lots of a section, in the order they came, and some that have
// ended. Whoever has looked at all of them up to some place need only look at
// those after it, as long as the generation is the same.
type roster struct {
	lots       []*lot
	ended      int
	generation uint64
}

func (r *roster) add(l *lot) { r.lots = append(r.lots, l) }

// end notes that a lot has no executors any more. Those that have ended are
// taken out, and a generation is started, when they are the larger part.
func (r *roster) end() {
	r.ended++
	if 2*r.ended > len(r.lots) {
		r.lots = slices.DeleteFunc(r.lots, func(l *lot) bool { return l.size == 0 })
		r.ended = 0
		r.generation++
	}
}

// query is the constraints of one group made ready to be asked again and
// again: which lots they choose is kept between passes.
type query struct {
	matcher   constraint.Matcher
	resources resource.Vector
	role      string
	// sku is folded, empty for any.
	sku      string
	selector selector
	section  *section
	// eligible are the lots of the section seen so far that are of the SKU and
	// large enough, small those of the SKU that are not. Either may hold some
	// that have ended.
	eligible []eligible
	small    []*lot
	// largest is, for each SKU, the eligible lot of which an idle executor takes
	// the most workers.
	largest    map[*sku]*lot
	seen       int
	generation uint64
}

// eligible is a lot of whose executors an idle one could take a worker.
type eligible struct {
	lot *lot
	// need is the request in the order of the shape's names, share the place of
	// the role's share plus one.
	need  []int64
	share int
}

// maxEligible bounds what all queries remember; they start again when it is
// reached. An entry takes some 50 bytes.
const maxEligible = 1 << 20

// queries are those asked, by canonical constraints and what they spread by.
type queries struct {
	byText map[string]*query
	size   int
}

// query answers what the fleet has for the constraints, but for whom to avoid.
func (c *Core) query(k constraint.Constraints) *query {
	text := k.Canonical()
	if by := spreadBy(k.Spread); by != "" {
		text += ";by:" + by
	}
	return c.queryOf(text, k)
}

// spreadBy is the folded name of the attribute by which batches are spread,
// empty for none.
func spreadBy(s constraint.Spread) string {
	if s.Max <= 0 || s.Single() {
		return ""
	}
	return constraint.Fold(s.By)
}

func (c *Core) queryOf(text string, k constraint.Constraints) *query {
	q := c.queries.byText[text]
	if q == nil {
		if c.queries.size > maxEligible || c.queries.byText == nil {
			c.queries = queries{byText: map[string]*query{}}
		}
		q = &query{
			matcher: kind(k), resources: k.Resources, role: k.Role, sku: constraint.Fold(k.SKU),
			selector: selector{k.Attributes, k.Pools, spreadBy(k.Spread)},
			largest:  map[*sku]*lot{},
		}
		c.queries.byText[text] = q
		c.queries.size++
	}
	c.queries.size -= len(q.eligible) + len(q.small)
	q.catchUp(&c.sections)
	c.queries.size += len(q.eligible) + len(q.small)
	return q
}

// catchUp looks at the lots that came since it was asked last.
func (q *query) catchUp(all *sections) {
	section := all.get(q.selector, q.section)
	if q.section != section || q.generation != section.roster.generation {
		clear(q.eligible)
		clear(q.small)
		clear(q.largest)
		q.eligible, q.small = q.eligible[:0], q.small[:0]
		q.seen, q.section, q.generation = 0, section, section.roster.generation
	}
	for _, lot := range section.roster.lots[q.seen:] {
		if lot.size > 0 {
			q.look(lot)
		}
	}
	q.seen = len(section.roster.lots)
}

func (q *query) look(l *lot) {
	switch {
	case !q.hasSKU(l.shape):
	case !q.fits(l.shape):
		q.small = append(q.small, l)
	default:
		q.eligible = append(q.eligible, eligible{l, q.need(l.shape), l.shape.shareOf(q.role)})
		q.enlarge(l)
	}
}

func (q *query) hasSKU(s *shape) bool { return q.sku == "" || q.sku == s.sku.folded }

// enlarge makes an eligible lot its SKU's largest, if it is.
func (q *query) enlarge(l *lot) {
	if last := q.largest[l.shape.sku]; last == nil || q.compareSize(l.shape, last.shape) < 0 {
		q.largest[l.shape.sku] = l
	}
}

// compareSize orders shapes of which an idle executor takes more workers first.
func (q *query) compareSize(a, b *shape) int {
	return cmp.Or(cmp.Compare(b.allowed(q.role).Times(q.resources), a.allowed(q.role).Times(q.resources)), cmp.Compare(a.key, b.key))
}

// largestOf answers the eligible shape of a SKU of which an idle executor takes
// the most workers; nil for none.
func (q *query) largestOf(s *sku) *shape {
	l := q.largest[s]
	if l != nil && l.size == 0 {
		delete(q.largest, s)
		for _, e := range q.eligible {
			if e.lot.shape.sku == s && e.lot.size > 0 {
				q.enlarge(e.lot)
			}
		}
		l = q.largest[s]
	}
	if l == nil {
		return nil
	}
	return l.shape
}

// any says whether a lot is eligible that has executors.
func (q *query) any() bool {
	return slices.ContainsFunc(q.eligible, func(e eligible) bool { return e.lot.size > 0 })
}

// fits says whether an idle executor of the shape has room for a worker.
func (q *query) fits(s *shape) bool {
	return s.resources.Fits(q.resources) && (len(s.shares) == 0 || s.allowed(q.role).Fits(q.resources))
}

// takes says whether the executor, if it were idle, could take a worker.
func (q *query) takes(h *host) bool {
	return q.hasSKU(h.shape) && q.fits(h.shape) && q.postOf(h) != nil
}

// postOf answers the executor's place in the query's section; nil for none.
func (q *query) postOf(h *host) *post {
	for i := range h.posts {
		if h.posts[i].lot.section == q.section {
			return &h.posts[i]
		}
	}
	return nil
}

// need answers the request in the order of the shape's names. Neighbours with
// the same names share one.
func (q *query) need(s *shape) []int64 {
	if n := len(q.eligible); n > 0 && slices.Equal(q.eligible[n-1].lot.shape.names, s.names) {
		return q.eligible[n-1].need
	}
	return amountsOf(q.resources, s.names)
}

// ready counts the executors of eligible lots that may be given work.
func (q *query) ready() (n int) {
	for _, e := range q.eligible {
		n += e.lot.ready()
	}
	return n
}

// kind matches classes: whom to avoid is asked of each executor.
func kind(k constraint.Constraints) constraint.Matcher {
	k.Avoid = nil
	return k.Matcher()
}
