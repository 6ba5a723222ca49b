package match

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Query holds the constraints of one group, prepared for many searches.
type Query struct {
	matcher   constraint.Matcher
	resources resource.Vector
	// role and sku are folded; an empty sku allows any SKU.
	role, sku string
	selector  selector
	text      string // the text of selector
	selection *selection
	// aligned is the request in the order of layout, to which it was last aligned for a
	// change.
	layout  *layout
	aligned *alignedRequest
	// free holds the sums of what is free for the query. They are valid for the kindVersion
	// freeVersion, and include the moves before freeMoves. counters holds the counters of
	// these sums, by layout. See scarce.go.
	free        freeSums
	freeVersion uint64
	freeMoves   uint64
	counters    map[*layout]*counter
	// largest is the result of Index.largest for the kindVersion largestVersion.
	largest        map[*SKU]*Shape
	largestVersion uint64
}

// maxQueries limits the number of queries in memory. At the limit all are deleted.
const maxQueries = 1 << 14

// Query returns the query of constraints, without the executors to avoid.
func (ix *Index) Query(k constraint.Constraints) *Query { return ix.queryOf(textOf(k), k) }

// textOf returns a text that is the same for constraints with the same query.
func textOf(k constraint.Constraints) string {
	text := k.Canonical()
	if by := spreadBy(k.Spread); by != "" {
		text += ";by:" + by
	}
	return text
}

// spreadBy returns the folded name of the attribute to spread by; empty for none.
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
		// The matcher is for classes; executors to avoid are checked one by one.
		classes := k
		classes.Avoid, classes.AvoidFailed, classes.RefusedBy = nil, nil, nil
		q = &Query{
			matcher: classes.Matcher(), resources: k.Resources, role: constraint.Fold(k.Role), sku: constraint.Fold(k.SKU),
			selector: selector{k.Attributes, k.Pools, spreadBy(k.Spread)},
		}
		q.text = q.selector.text()
		ix.queries[text] = q
	}
	q.selection = ix.selections.get(q.selector, q.text)
	return q
}

// Matches reports whether the query selects a host, whatever the host's free capacity.
func (q *Query) Matches(h constraint.Host) bool {
	ok, _ := q.matcher.Match(h)
	return ok
}

// Resources returns what a worker of the query uses.
func (q *Query) Resources() resource.Vector { return q.resources }

// hasSKU reports whether the query allows executors of a SKU.
func (q *Query) hasSKU(s *SKU) bool { return q.sku == "" || q.sku == s.folded }

// Fits reports whether a worker fits on an idle executor of the shape.
func (q *Query) Fits(s *Shape) bool {
	return s.resources.Fits(q.resources) && (len(s.shares) == 0 || s.Allowed(q.role).Fits(q.resources))
}

// Largest returns what the workers of a query may use on an executor of a SKU: on the
// shape whose idle executor takes the most workers. If several shapes qualify, the shape
// of the executor that is first in rank counts. Largest returns nil if no worker fits.
func (ix *Index) Largest(q *Query, sku string) resource.Vector {
	if q.largest == nil || q.largestVersion != ix.kindVersion {
		q.largest, q.largestVersion = ix.largest(q), ix.kindVersion
	}
	if s := q.largest[ix.SKU(sku)]; s != nil {
		return s.Allowed(q.role)
	}
	return nil
}

// largest returns this shape for every SKU.
func (ix *Index) largest(q *Query) map[*SKU]*Shape {
	type best struct {
		executor *Executor
		times    int64
	}
	found := map[int32]best{}
	better := func(sku int32, times int64, e *Executor) bool {
		known := found[sku]
		return known.executor == nil || times > known.times || times == known.times && Compare(e, known.executor) < 0
	}
	w := ix.scan(q, false)
	for a, b := range w.blocks() {
		if b.lowSKU == b.highSKU && !better(b.lowSKU, a.times(b.high, unlimited), b.executors[0]) {
			continue
		}
		for at := range w.fitting(a, b) {
			sku, times := b.traits[at].sku, a.times(b.point(at), unlimited)
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
