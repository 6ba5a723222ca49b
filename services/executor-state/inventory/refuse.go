package inventory

import (
	"fmt"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
)

// avoided are the executors that the batch must not use. The list yields when
// nothing else is left: when every executor that is READY, of the kind asked
// for and large enough is on it.
func (c *Core) avoided(k constraint.Constraints) map[string]bool {
	if len(k.Avoid) == 0 {
		return nil
	}
	avoided := make(map[string]bool, len(k.Avoid))
	kind := kind(k)
	eligible := map[*class]int{}
	others := 0
	for _, class := range c.classes {
		if ok, _ := kind.Match(class.host); ok && class.resources.Fits(k.Resources) {
			eligible[class] = class.ready
			others += class.ready
		}
	}
	for _, id := range k.Avoid {
		if h := c.hosts[id]; h != nil && h.bucket != nil && !avoided[id] && eligible[h.class] > 0 {
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
	kind := kind(k)
	ofSKU, ofKind, large := 0, 0, 0
	for _, class := range c.classes {
		if k.SKU != "" && !strings.EqualFold(class.host.SKU, k.SKU) {
			continue
		}
		ofSKU += class.size
		if ok, _ := kind.Match(class.host); !ok {
			continue
		}
		ofKind += class.size
		if class.resources.Fits(k.Resources) {
			large += class.size
		}
	}
	switch {
	case k.SKU != "" && ofSKU == 0:
		return fault.ReasonNoMatchingSKU, fmt.Sprintf("no executor of SKU %s is registered", k.SKU)
	case ofKind == 0:
		return fault.ReasonNoMatchingExecutor, "no executor of that kind is registered"
	case large == 0:
		return fault.ReasonNoMatchingExecutor, fmt.Sprintf("%s of that kind, none large enough for %s", executors(ofKind), k.Resources.Canonical())
	}
	return fault.ReasonInsufficientCapacity, fmt.Sprintf("%d needed, %d fit now", needed, fitting)
}

// executors counts in words.
func executors(n int) string {
	if n == 1 {
		return "1 executor"
	}
	return fmt.Sprintf("%d executors", n)
}
