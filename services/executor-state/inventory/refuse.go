package inventory

import (
	"fmt"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
)

// avoided are the executors that the batch must not use. The list yields when
// nothing else is left: when every executor that is READY, of the kind asked
// for and large enough is on it.
func (c *Core) avoided(k constraint.Constraints, q *query) map[string]bool {
	if len(k.Avoid) == 0 {
		return nil
	}
	avoided := make(map[string]bool, len(k.Avoid))
	others := q.ready()
	for _, id := range k.Avoid {
		if h := c.hosts[id]; h != nil && h.standing == open && !avoided[id] && q.takes(h) {
			others--
		}
		avoided[id] = true
	}
	if others == 0 {
		return nil
	}
	return avoided
}

// refusal says why a batch did not fit.
func (c *Core) refusal(k constraint.Constraints, needed, fitting int) (fault.Reason, string) {
	q := c.query(k)
	ofKind := 0
	for _, lot := range q.small {
		ofKind += lot.size
	}
	switch {
	case q.any():
		return fault.ReasonInsufficientCapacity, fmt.Sprintf("%d needed, %d fit now", needed, fitting)
	case ofKind > 0:
		return fault.ReasonNoMatchingExecutor, fmt.Sprintf("%s of that kind, none large enough for %s", executors(ofKind), k.Resources.Canonical())
	case k.SKU != "" && !c.registeredSKU(k.SKU):
		return fault.ReasonNoMatchingSKU, fmt.Sprintf("no executor of SKU %s is registered", k.SKU)
	case len(k.Pools) > 0 && !c.registeredPool(k.Pools):
		return fault.ReasonNoMatchingPool, fmt.Sprintf("no executor is in %s", strings.Join(k.Pools, " or "))
	}
	return fault.ReasonNoMatchingExecutor, "no executor of that kind is registered"
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
