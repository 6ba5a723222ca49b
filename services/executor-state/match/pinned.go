package match

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"berth.dev/pkg/constraint"
)

// Some workers of a reservation may have their executors before the search: those that other
// versions of the reservation have, and those on volumes, which run where their volume is. The
// owner adds what they use to the executors, and the search places the other workers around
// them: spread, sameShape and pack hold for all workers together.

// pins holds the workers that have their executors before a search.
type pins struct {
	// pinned counts them by executor. pinnedIn counts them by domain if the constraints spread by
	// an attribute, which domains then is. All are nil without such workers.
	pinned   map[*Executor]int
	pinnedIn map[*attributeValue]int64
	domains  *attributeIndex
	// spread is the maximum number of workers in one domain, or on one executor without domains.
	spread int64
	// shape is the only shape for further workers; nil for any.
	shape *Shape
}

// pins returns the pins of workers that have their executors already.
func (ix *Index) pins(k constraint.Constraints, q *Query, pinned map[*Executor]int) pins {
	p := pins{spread: math.MaxInt64, domains: q.selection.domains}
	if k.Spread.Max > 0 {
		p.spread = int64(k.Spread.Max)
	}
	if len(pinned) == 0 {
		return p
	}
	p.pinned = pinned
	if p.domains != nil {
		p.pinnedIn = map[*attributeValue]int64{}
	}
	on := map[*Shape]int{}
	for e, n := range pinned {
		if p.domains != nil {
			p.pinnedIn[p.domains.ofClass(e.class.index)] += int64(n)
		}
		if k.SameShape {
			on[e.shape] += n
		}
	}
	// If an earlier version allowed several shapes, the one with the most workers counts.
	for shape, n := range on {
		if p.shape == nil || cmp.Or(cmp.Compare(n, on[p.shape]), cmp.Compare(p.shape.key, shape.key)) > 0 {
			p.shape = shape
		}
	}
	return p
}

// limited reports whether these workers limit where others may run.
func (p *pins) limited() bool {
	return len(p.pinned) > 0 && (p.shape != nil || p.spread < math.MaxInt64)
}

// left returns how many more workers spread allows on an executor, or in its domain. It is
// negative if the workers that have their executors exceed the spread.
func (p *pins) left(e *Executor) int64 {
	if p.domains == nil {
		return p.spread - int64(p.pinned[e])
	}
	return p.spread - p.pinnedIn[p.domains.ofClass(e.class.index)]
}

// exclude returns the constraint by which the workers that have their executors exclude an
// executor for all others: "spread", "sameShape" or none.
func (p *pins) exclude(e *Executor) string {
	switch {
	case len(p.pinned) == 0:
		return ""
	case p.shape != nil && e.shape != p.shape:
		return "sameShape"
	case p.left(e) <= 0:
		return "spread"
	}
	return ""
}

// check returns the check that an executor fails which exclude excludes. by is what the workers
// are spread by.
func (p *pins) check(e *Executor, by string) constraint.Check {
	name := p.exclude(e)
	if name == "sameShape" {
		return constraint.Check{Name: name, Want: "the shape of the reservation's workers", Have: "another shape"}
	}
	return constraint.Check{Name: name, Want: fmt.Sprintf("at most %d per %s", p.spread, by),
		Have: strconv.FormatInt(p.spread-p.left(e), 10)}
}

// mostOn returns the maximum number of workers that the search may place on an executor,
// whatever its free capacity.
func (s *search) mostOn(e *Executor) int64 {
	if s.pinned[e] > 0 && s.domains == nil {
		return max(0, min(s.most, s.left(e)))
	}
	return s.most
}

// fillPinned picks as many workers as possible on the executors that have workers already.
func (s *search) fillPinned() []Pick {
	s.scarcity() // of all executors, not only of these
	near := *s
	near.members, near.aligned = nil, nil
	var list []*Executor
	for e := range s.pinned {
		if e.eligibility == Eligible && s.query.hasSKU(e.shape.sku) && s.query.selection.contains(e.class.index) {
			list = append(list, e)
		}
	}
	near.group(list)
	return near.fill(s.needed)
}

// Conflict describes why workers that start where their volumes are cannot start together with
// the constraints; empty if they can. Only the workers of one batch conflict: a worker that
// starts again where its volume is takes no place that it did not have before.
func (ix *Index) Conflict(k constraint.Constraints, homes map[*Executor]int) string {
	p := ix.pins(k, ix.Query(k), homes)
	for e := range homes {
		if p.left(e) < 0 {
			return fmt.Sprintf("more than %d of them are in one %s", k.Spread.Max, k.Spread.By)
		}
		if p.shape != nil && e.shape != p.shape {
			return "they are on executors of different shapes"
		}
	}
	return ""
}

// Together returns the sums of two counts of workers. It may return one of them.
func Together(a, b map[*Executor]int) map[*Executor]int {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	sum := make(map[*Executor]int, len(a)+len(b))
	for e, n := range a {
		sum[e] = n
	}
	for e, n := range b {
		sum[e] += n
	}
	return sum
}

// Allows reports whether a worker with the constraints may use an executor, whatever the
// executor's free capacity.
func (ix *Index) Allows(k constraint.Constraints, e *Executor) bool {
	q := ix.Query(k)
	return q.Matches(e.class.host) && !ix.named(k.Avoid)[e]
}

// Excluded returns the executors that a batch must not use although its query selects them:
// those that Avoided returns, and the eligible ones that the workers exclude that have their
// executors already.
func (ix *Index) Excluded(k constraint.Constraints, pinned map[*Executor]int) map[*Executor]bool {
	q := ix.Query(k)
	p := ix.pins(k, q, pinned)
	excluded := ix.Avoided(k, q, &p)
	if !p.limited() {
		return excluded
	}
	all := map[*Executor]bool{}
	for e := range excluded {
		all[e] = true
	}
	w := ix.scan(q, false)
	for a, b := range w.blocks() {
		for at := range w.fitting(a, b) {
			if e := b.executors[at]; e.eligibility == Eligible && p.exclude(e) != "" {
				all[e] = true
			}
		}
	}
	return all
}
