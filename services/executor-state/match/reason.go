package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// Avoided returns the executors that the batch must not use. These always include the
// executors of Avoid. They include the executors of AvoidFailed while another executor is
// left: an eligible executor that the query and the workers that have their executors allow,
// that is large enough, and that is on neither list. Executors with the allow-lists of an executor
// of RefusedBy count as being on the list AvoidFailed: they would refuse the task too, so waiting for
// them would be in vain.
func (ix *Index) Avoided(k constraint.Constraints, q *Query, p *pins) map[*Executor]bool {
	hard := ix.named(k.Avoid)
	if len(k.AvoidFailed) == 0 {
		return hard
	}
	w := ix.scan(q, false)
	w.avoided = ix.named(k.Avoid, k.AvoidFailed)
	refuse := ix.allowLists(k.RefusedBy)
	if !w.hasOther(refuse, p) {
		return hard
	}
	if len(refuse) == 0 {
		return w.avoided
	}
	avoided := maps.Clone(w.avoided)
	for a, b := range w.blocks() {
		for at := range w.fitting(a, b) {
			if e := b.executors[at]; refuse[e.allowLists] {
				avoided[e] = true
			}
		}
	}
	return avoided
}

// hasOther reports whether the scan has an eligible executor that the workers that have their
// executors allow, and whose allow-lists are not among those that refuse the task.
func (w *scan) hasOther(refuse map[string]bool, p *pins) bool {
	for a, b := range w.blocks() {
		for at := range w.fitting(a, b) {
			if e := b.executors[at]; e.eligibility == Eligible && !refuse[e.allowLists] && p.exclude(e) == "" {
				return true
			}
		}
	}
	return false
}

// allowLists returns the known allow-lists of executors.
func (ix *Index) allowLists(ids []string) map[string]bool {
	lists := map[string]bool{}
	for e := range ix.named(ids) {
		if e.allowLists != "" {
			lists[e.allowLists] = true
		}
	}
	return lists
}

// named returns the executors on the lists; nil if there are none.
func (ix *Index) named(lists ...[]string) (found map[*Executor]bool) {
	for _, list := range lists {
		for _, id := range list {
			if e := ix.owner.Executor(id); e != nil {
				if found == nil {
					found = map[*Executor]bool{}
				}
				found[e] = true
			}
		}
	}
	return found
}

// reason returns why a batch did not fit. limited reports whether workers that have their
// executors already limited the search.
func (ix *Index) reason(k constraint.Constraints, needed, fitting int, limited bool) (fault.Reason, string) {
	q := ix.Query(k)
	if fitting > 0 || ix.largeEnough(q) {
		message := fmt.Sprintf("%d needed, %d fit now", needed, fitting)
		if limited {
			if alone := ix.search(k, needed, nil).fit(); alone > fitting {
				message += fmt.Sprintf("; without the workers of the reservation that have executors, %d would fit", alone)
			}
		}
		return fault.ReasonInsufficientCapacity, message
	}
	hasExecutors := func(pool string) bool { return ix.pools[constraint.Fold(pool)] != nil }
	switch ofKind := ix.OfKind(q); {
	case ofKind > 0:
		return fault.ReasonNoMatchingExecutor, fmt.Sprintf("%s of that kind, none large enough for %s",
			CountExecutors(ofKind), k.Resources.Canonical())
	case k.SKU != "" && ix.SKU(k.SKU) == nil:
		return fault.ReasonNoMatchingSKU, fmt.Sprintf("no executor of SKU %s is registered", k.SKU)
	case len(k.Pools) > 0 && !slices.ContainsFunc(k.Pools, hasExecutors):
		return fault.ReasonNoMatchingPool, fmt.Sprintf("no executor is in %s", strings.Join(k.Pools, " or "))
	}
	return fault.ReasonNoMatchingExecutor, "no executor of that kind is registered"
}

// largeEnough reports whether a worker would fit on an executor if all were idle.
func (ix *Index) largeEnough(q *Query) bool {
	w := ix.scan(q, false)
	for a, b := range w.blocks() {
		for range w.fitting(a, b) {
			return true
		}
	}
	return false
}

// OfKind counts the executors that the query allows, whatever their resources.
func (ix *Index) OfKind(q *Query) (n int) {
	switch s := ix.skus[q.sku]; {
	case q.selection.wholeFleet() && q.sku == "":
		return ix.executors
	case q.sku != "" && s == nil:
		return 0
	case q.selection.wholeFleet():
		for _, shape := range s.shapes {
			n += shape.size
		}
		return n
	}
	for _, l := range ix.layouts {
		for _, b := range l.idle.blocks {
			ix.Work += len(b.traits)
			for at, t := range b.traits {
				if q.selection.contains(t.class) && q.hasSKU(b.shapes[at].sku) {
					n++
				}
			}
		}
	}
	return n
}

// CountExecutors returns a number of executors with the noun: "1 executor".
func CountExecutors(n int) string {
	if n == 1 {
		return "1 executor"
	}
	return fmt.Sprintf("%d executors", n)
}
