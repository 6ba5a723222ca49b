package inventory

import (
	"slices"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// roster is the classes there are, in the order they came. Whoever has looked
// at all of them up to some place need only look at those after it, as long as
// the generation is the same.
type roster struct {
	classes    []*class
	generation uint64
}

func (r *roster) add(k *class) { r.classes = append(r.classes, k) }

// remove starts a generation, for the places of others change.
func (r *roster) remove(k *class) {
	at := slices.Index(r.classes, k)
	r.classes = slices.Delete(r.classes, at, at+1)
	r.generation++
}

// query is the constraints of one group made ready to be asked again and
// again: which classes they choose is kept between passes.
type query struct {
	matcher   constraint.Matcher
	resources resource.Vector
	role      string
	// eligible are the classes seen so far that match and are large enough,
	// small those that match and are not.
	eligible   []eligible
	small      []*class
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
func (c *Core) query(k constraint.Constraints) *query {
	text := k.Canonical()
	q := c.queries.byText[text]
	if q == nil {
		if c.queries.size > maxEligible || c.queries.byText == nil {
			c.queries = queries{byText: map[string]*query{}}
		}
		q = &query{matcher: kind(k), resources: k.Resources, role: k.Role, generation: c.roster.generation}
		c.queries.byText[text] = q
		c.queries.size++
	}
	c.queries.size -= len(q.eligible) + len(q.small)
	if q.generation != c.roster.generation {
		clear(q.eligible)
		clear(q.small)
		q.eligible, q.small = q.eligible[:0], q.small[:0]
		q.seen, q.generation = 0, c.roster.generation
	}
	for _, class := range c.roster.classes[q.seen:] {
		q.look(class)
	}
	q.seen = len(c.roster.classes)
	c.queries.size += len(q.eligible) + len(q.small)
	return q
}

func (q *query) look(k *class) {
	if ok, _ := q.matcher.Match(k.host); !ok {
		return
	}
	if q.fits(k) {
		q.eligible = append(q.eligible, eligible{k, q.need(k), k.shareOf(q.role)})
	} else {
		q.small = append(q.small, k)
	}
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
