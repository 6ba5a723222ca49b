package inventory

import (
	"cmp"
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// roster is the classes there are, in the order they came, and some that have
// ended. Whoever has looked at all of them up to some place need only look at
// those after it, as long as the generation is the same.
type roster struct {
	classes    []*class
	ended      int
	generation uint64
}

func (r *roster) add(k *class) { r.classes = append(r.classes, k) }

// end notes that a class has no executors any more. Those that have ended are
// taken out, and a generation is started, when they are the larger part.
func (r *roster) end() {
	r.ended++
	if 2*r.ended > len(r.classes) {
		r.classes = slices.DeleteFunc(r.classes, func(k *class) bool { return k.size == 0 })
		r.ended = 0
		r.renew()
	}
}

// renew has every query look at all classes again.
func (r *roster) renew() { r.generation++ }

// query is the constraints of one group made ready to be asked again and
// again: which classes they choose is kept between passes.
type query struct {
	matcher   constraint.Matcher
	resources resource.Vector
	role      string
	// eligible are the classes seen so far that match and are large enough,
	// small those that match and are not. Either may hold some that have ended.
	eligible []eligible
	small    []*class
	// largest is, for each SKU, the eligible class of which an idle executor
	// takes the most workers.
	largest    map[*sku]*class
	seen       int
	generation uint64
}

// eligible is a class of whose executors an idle one could take a worker.
type eligible struct {
	class *class
	// need is the request in the order of the class's names, share the place of
	// the role's share plus one.
	need  []int64
	share int
}

// maxEligible bounds what all queries remember; they start again when it is
// reached. An entry takes some 50 bytes.
const maxEligible = 1 << 20

// queries are those asked, by canonical constraints.
type queries struct {
	byText map[string]*query
	size   int
}

// query answers what the fleet has for the constraints, but for whom to avoid.
func (c *Core) query(k constraint.Constraints) *query { return c.queryOf(k.Canonical(), k) }

func (c *Core) queryOf(text string, k constraint.Constraints) *query {
	q := c.queries.byText[text]
	if q == nil {
		if c.queries.size > maxEligible || c.queries.byText == nil {
			c.queries = queries{byText: map[string]*query{}}
		}
		q = &query{matcher: kind(k), resources: k.Resources, role: k.Role, largest: map[*sku]*class{}, generation: c.roster.generation}
		c.queries.byText[text] = q
		c.queries.size++
	}
	c.queries.size -= len(q.eligible) + len(q.small)
	if q.generation != c.roster.generation {
		clear(q.eligible)
		clear(q.small)
		clear(q.largest)
		q.eligible, q.small = q.eligible[:0], q.small[:0]
		q.seen, q.generation = 0, c.roster.generation
	}
	for _, class := range c.roster.classes[q.seen:] {
		if class.size > 0 {
			q.look(class)
		}
	}
	q.seen = len(c.roster.classes)
	c.queries.size += len(q.eligible) + len(q.small)
	return q
}

func (q *query) look(k *class) {
	if ok, _ := q.matcher.Match(k.host); !ok {
		return
	}
	if !q.fits(k) {
		q.small = append(q.small, k)
		return
	}
	q.eligible = append(q.eligible, eligible{k, q.need(k), k.shareOf(q.role)})
	q.enlarge(k)
}

// enlarge makes an eligible class its SKU's largest, if it is.
func (q *query) enlarge(k *class) {
	if last := q.largest[k.sku]; last == nil || q.compareSize(k, last) < 0 {
		q.largest[k.sku] = k
	}
}

// compareSize orders classes of which an idle executor takes more workers
// first.
func (q *query) compareSize(a, b *class) int {
	return cmp.Or(cmp.Compare(b.allowed(q.role).Times(q.resources), a.allowed(q.role).Times(q.resources)), cmp.Compare(a.key, b.key))
}

// largestOf answers the eligible class of a SKU of which an idle executor takes
// the most workers; nil for none.
func (q *query) largestOf(s *sku) *class {
	if k := q.largest[s]; k == nil || k.size > 0 {
		return k
	}
	delete(q.largest, s)
	for _, e := range q.eligible {
		if e.class.sku == s && e.class.size > 0 {
			q.enlarge(e.class)
		}
	}
	return q.largest[s]
}

// any says whether a class is eligible that has executors.
func (q *query) any() bool {
	return slices.ContainsFunc(q.eligible, func(e eligible) bool { return e.class.size > 0 })
}

// fits says whether an idle executor of the class has room for a worker.
func (q *query) fits(k *class) bool {
	return k.resources.Fits(q.resources) && (len(k.shares) == 0 || k.allowed(q.role).Fits(q.resources))
}

// takes says whether an idle executor of the class could take a worker.
func (q *query) takes(k *class) bool {
	ok, _ := q.matcher.Match(k.host)
	return ok && q.fits(k)
}

// need answers the request in the order of the class's names. Neighbours with
// the same names share one.
func (q *query) need(k *class) []int64 {
	if n := len(q.eligible); n > 0 && slices.Equal(q.eligible[n-1].class.names, k.names) {
		return q.eligible[n-1].need
	}
	return amountsOf(q.resources, k.names)
}

// ready counts the executors of eligible classes that may be given work.
func (q *query) ready() (n int) {
	for _, e := range q.eligible {
		n += e.class.ready()
	}
	return n
}

// kind matches classes: whom to avoid is asked of each executor.
func kind(k constraint.Constraints) constraint.Matcher {
	k.Avoid = nil
	return k.Matcher()
}
