package inventory

import (
	"fmt"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// avoided returns the executors that the batch must not use. Those of its Avoid
// never are. Those of its AvoidFailed are when nothing else is left: when every
// executor that is READY, of the kind asked for and large enough is on one of the
// two lists.
func (c *Core) avoided(k constraint.Constraints, q *query) map[*host]bool {
	hard := c.hostsNamed(k.Avoid)
	if len(k.AvoidFailed) == 0 {
		return hard
	}
	w := c.walk(q, false)
	w.avoided = c.hostsNamed(k.Avoid, k.AvoidFailed)
	for a, b := range w.blocks() {
		for at := range w.fitting(a, b) {
			if b.hosts[at].standing == open {
				return w.avoided
			}
		}
	}
	return hard
}

// hostsNamed returns the executors that lists name; nil for none.
func (c *Core) hostsNamed(lists ...[]string) (named map[*host]bool) {
	for _, list := range lists {
		for _, id := range list {
			if h := c.hosts[id]; h != nil {
				if named == nil {
					named = map[*host]bool{}
				}
				named[h] = true
			}
		}
	}
	return named
}

// refusal says why a batch did not fit.
func (c *Core) refusal(k constraint.Constraints, needed, fitting int) (fault.Reason, string) {
	q := c.query(k)
	if fitting > 0 || c.largeEnough(q) {
		return fault.ReasonInsufficientCapacity, fmt.Sprintf("%d needed, %d fit now", needed, fitting)
	}
	switch ofKind := c.ofKind(q); {
	case ofKind > 0:
		return fault.ReasonNoMatchingExecutor, fmt.Sprintf("%s of that kind, none large enough for %s", executors(ofKind), k.Resources.Canonical())
	case k.SKU != "" && !c.registeredSKU(k.SKU):
		return fault.ReasonNoMatchingSKU, fmt.Sprintf("no executor of SKU %s is registered", k.SKU)
	case len(k.Pools) > 0 && !c.registeredPool(k.Pools):
		return fault.ReasonNoMatchingPool, fmt.Sprintf("no executor is in %s", strings.Join(k.Pools, " or "))
	}
	return fault.ReasonNoMatchingExecutor, "no executor of that kind is registered"
}

// largeEnough says whether some executor, if it were idle, would take a worker.
func (c *Core) largeEnough(q *query) bool {
	w := c.walk(q, false)
	for a, b := range w.blocks() {
		for range w.fitting(a, b) {
			return true
		}
	}
	return false
}

// ofKind counts the executors of the section and SKU, whatever they have.
func (c *Core) ofKind(q *query) (n int) {
	switch s := c.skus[q.sku]; {
	case q.section.whole() && q.sku == "":
		return len(c.hosts)
	case q.sku != "" && s == nil:
		return 0
	case q.sku != "" && (q.section.whole() || len(s.shapes) == 0):
		for _, shape := range s.shapes {
			n += shape.size
		}
		return n
	}
	for _, f := range c.forms {
		for _, b := range f.all.blocks {
			c.spent += len(b.traits)
			for at, k := range b.traits {
				if q.section.has(k.class) && q.hasSKU(b.hosts[at].shape.sku) {
					n++
				}
			}
		}
	}
	return n
}

// registeredSKU says whether an executor of the SKU is registered.
func (c *Core) registeredSKU(name string) bool {
	s := c.skus[constraint.Fold(name)]
	return s != nil && len(s.shapes) > 0
}

// registeredPool says whether an executor is in one of the pools.
func (c *Core) registeredPool(pools []string) bool {
	return slices.ContainsFunc(pools, func(pool string) bool { return c.crews[constraint.Fold(pool)] != nil })
}

// executors counts in words.
func executors(n int) string {
	if n == 1 {
		return "1 executor"
	}
	return fmt.Sprintf("%d executors", n)
}
