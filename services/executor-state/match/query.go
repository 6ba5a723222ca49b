package match

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Query is the constraints of one group, prepared to be searched for again and again.
type Query struct {
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
	// tally is what is free for the query, as of Index.kinds and up to the number of
	// Index.moved; counters are its own, by form. See scarce.go.
	tally    tally
	tallied  uint64
	tallyAt  uint64
	counters map[*form]*counter
	// largest are as largest returns them, as of Index.kinds.
	largest map[*SKU]*Shape
	kinds   uint64
}

// maxQueries bounds what is remembered of queries; they start again when it is
// reached.
const maxQueries = 1 << 14

// Query returns the query of constraints, without the executors to avoid.
func (ix *Index) Query(k constraint.Constraints) *Query { return ix.queryOf(textOf(k), k) }

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

func (ix *Index) queryOf(text string, k constraint.Constraints) *Query {
	q := ix.queries[text]
	if q == nil {
		if len(ix.queries) >= maxQueries {
			clear(ix.queries)
		}
		q = &Query{
			matcher: kind(k), resources: k.Resources, role: constraint.Fold(k.Role), sku: constraint.Fold(k.SKU),
			selector: selector{k.Attributes, k.Pools, spreadBy(k.Spread)},
		}
		ix.queries[text] = q
	}
	q.section = ix.sections.get(q.selector, q.section)
	return q
}

// Matches reports whether a host is of the kind requested.
func (q *Query) Matches(h constraint.Host) bool {
	ok, _ := q.matcher.Match(h)
	return ok
}

// Resources returns what a worker of the query takes.
func (q *Query) Resources() resource.Vector { return q.resources }

// hasSKU reports whether executors of the SKU are asked for.
func (q *Query) hasSKU(s *SKU) bool { return q.sku == "" || q.sku == s.folded }

// Fits reports whether an idle executor of the shape has room for a worker.
func (q *Query) Fits(s *Shape) bool {
	return s.resources.Fits(q.resources) && (len(s.shares) == 0 || s.Allowed(q.role).Fits(q.resources))
}

// Largest returns what the executors of a SKU have for the workers of a query that,
// idle, take the most of them; of several those of the executor first in rank; nil where
// none takes one.
func (ix *Index) Largest(q *Query, sku string) resource.Vector {
	if q.largest == nil || q.kinds != ix.kinds {
		q.largest, q.kinds = ix.largest(q), ix.kinds
	}
	if s := q.largest[ix.SKU(sku)]; s != nil {
		return s.Allowed(q.role)
	}
	return nil
}

// largest returns the shape of these executors for every SKU.
func (ix *Index) largest(q *Query) map[*SKU]*Shape {
	type best struct {
		executor *Executor
		times    int64
	}
	found := map[int32]best{}
	w := ix.scan(q, false)
	for a, b := range w.blocks() {
		most := a.times(b.high, endless)
		better := func(sku int32, times int64, h *Executor) bool {
			known := found[sku]
			return known.executor == nil || times > known.times || times == known.times && Compare(h, known.executor) < 0
		}
		if b.lowSKU == b.highSKU && !better(b.lowSKU, most, b.executors[0]) {
			continue
		}
		for at := range w.fitting(a, b) {
			sku, times := b.traits[at].sku, a.times(b.point(at), endless)
			if better(sku, times, b.executors[at]) {
				found[sku] = best{b.executors[at], times}
			}
		}
	}
	largest := make(map[*SKU]*Shape, len(found))
	for _, b := range found {
		largest[b.executor.shape.sku] = b.executor.shape
	}
	return largest
}

// kind matches classes: whom to avoid is asked of each executor.
func kind(k constraint.Constraints) constraint.Matcher {
	k.Avoid, k.AvoidFailed = nil, nil
	return k.Matcher()
}
