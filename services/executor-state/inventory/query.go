package inventory

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// query is the constraints of one group made ready to be asked again and again.
type query struct {
	matcher   constraint.Matcher
	resources resource.Vector
	// role and sku are folded; sku is empty for any.
	role, sku string
	selector  selector
	section   *section
	// aim is the request in the order of form, which it was put in last for an
	// executor that became free.
	form *form
	aim  *aim
	// tally is what is free for the query, as of Core.kinds and up to the number of
	// Core.moved; counters are its own, by form. See scarce.go.
	tally    tally
	tallied  uint64
	tallyAt  uint64
	counters map[*form]*counter
	// largest are the answers of largestOf as of Core.kinds.
	largest map[*sku]*shape
	kinds   uint64
}

// maxQueries bounds what is remembered of queries; they start again when it is
// reached.
const maxQueries = 1 << 14

// query answers the constraints made ready, but for whom to avoid.
func (c *Core) query(k constraint.Constraints) *query { return c.queryOf(textOf(k), k) }

// textOf is the name of the query of constraints.
func textOf(k constraint.Constraints) string {
	text := k.Canonical()
	if by := spreadBy(k.Spread); by != "" {
		text += ";by:" + by
	}
	return text
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
	q := c.queries[text]
	if q == nil {
		if len(c.queries) >= maxQueries {
			clear(c.queries)
		}
		q = &query{
			matcher: kind(k), resources: k.Resources, role: constraint.Fold(k.Role), sku: constraint.Fold(k.SKU),
			selector: selector{k.Attributes, k.Pools, spreadBy(k.Spread)},
		}
		c.queries[text] = q
	}
	q.section = c.sections.get(q.selector, q.section)
	return q
}

// hasSKU says whether executors of the SKU are asked for.
func (q *query) hasSKU(s *sku) bool { return q.sku == "" || q.sku == s.folded }

// fits says whether an idle executor of the shape has room for a worker.
func (q *query) fits(s *shape) bool {
	return s.resources.Fits(q.resources) && (len(s.shares) == 0 || s.allowed(q.role).Fits(q.resources))
}

// largestOf answers the shape of the executors of a SKU that, idle, take the most
// workers of a query; of several that of the executor first in rank; nil where
// none takes one.
func (c *Core) largestOf(q *query, of *sku) *shape {
	if q.largest == nil || q.kinds != c.kinds {
		q.largest, q.kinds = c.largest(q), c.kinds
	}
	return q.largest[of]
}

// largest answers largestOf for every SKU.
func (c *Core) largest(q *query) map[*sku]*shape {
	type best struct {
		host  *host
		times int64
	}
	found := map[int32]best{}
	w := c.walk(q, false)
	for a, b := range w.blocks() {
		most := a.times(b.high, endless)
		better := func(sku int32, times int64, h *host) bool {
			known := found[sku]
			return known.host == nil || times > known.times || times == known.times && compareRank(h, known.host) < 0
		}
		if b.lowSKU == b.highSKU && !better(b.lowSKU, most, b.hosts[0]) {
			continue
		}
		for at := range w.fitting(a, b) {
			sku, times := b.traits[at].sku, a.times(b.point(at), endless)
			if better(sku, times, b.hosts[at]) {
				found[sku] = best{b.hosts[at], times}
			}
		}
	}
	largest := make(map[*sku]*shape, len(found))
	for _, b := range found {
		largest[b.host.shape.sku] = b.host.shape
	}
	return largest
}

// kind matches classes: whom to avoid is asked of each executor.
func kind(k constraint.Constraints) constraint.Matcher {
	k.Avoid, k.AvoidFailed = nil, nil
	return k.Matcher()
}
