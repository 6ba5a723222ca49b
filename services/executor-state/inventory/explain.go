package inventory

import (
	"cmp"
	"slices"
	"strconv"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/resource"
)

// Explanation is why a batch would or would not be granted now.
type Explanation struct {
	Needed, Fitting int
	// Reason and Message are those of the refusal, empty when all would fit.
	Reason  fault.Reason
	Message string
	// Checks are those that fail, most executors first.
	Checks []FailedCheck
}

// FailedCheck is the first check that some executors do not pass.
type FailedCheck struct {
	// Check is named "sku", "attributes.zone", "pools", "avoid"; or
	// "capacity.cpu" where not even an idle executor had enough, "state",
	// "draining" and "disabled" where it may not be given work, "free.cpu" where too little is left of it.
	constraint.Check
	// Executors is how many fail it just so.
	Executors int
}

// Explain answers why needed workers of the constraints would or would not be
// granted now. It looks at every executor that matches.
func (c *Core) Explain(k constraint.Constraints, needed int) Explanation {
	_, fitting := c.choose(k, needed)
	e := Explanation{Needed: needed, Fitting: fitting}
	if fitting < needed {
		e.Reason, e.Message = c.refusal(k, needed, fitting)
	}
	avoided := c.avoided(k)
	kind := kind(k)
	failed := map[constraint.Check]int{}
	for h := range c.byID.all() {
		if check, fails := h.fails(k, kind, avoided); fails {
			failed[check]++
		}
	}
	for check, count := range failed {
		e.Checks = append(e.Checks, FailedCheck{check, count})
	}
	slices.SortFunc(e.Checks, func(a, b FailedCheck) int {
		return cmp.Or(cmp.Compare(b.Executors, a.Executors), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Have, b.Have))
	})
	return e
}

// fails answers the first check that the executor does not pass for one worker.
func (h *host) fails(k constraint.Constraints, kind constraint.Matcher, avoided map[string]bool) (constraint.Check, bool) {
	if ok, failed := kind.Match(h.class.host); !ok {
		return failed, true
	}
	if name, short := lacks(h.class.resources, k.Resources); short {
		return amounts("capacity."+name, k.Resources[name], h.class.resources[name]), true
	}
	if avoided[h.id] {
		return constraint.Check{Name: "avoid", Want: "another executor", Have: h.id}, true
	}
	if why, withheld := h.withheld(); withheld {
		return why, true
	}
	free := h.class.resources.Plus(-1, h.hold.used)
	if name, short := lacks(free, k.Resources); short {
		return amounts("free."+name, k.Resources[name], max(0, free[name])), true
	}
	if h.bucket == nil {
		return constraint.Check{Name: "overcommitted", Want: "used within capacity", Have: excess(h.hold.used, h.class.resources)}, true
	}
	return constraint.Check{}, false
}

// lacks answers the first resource of which there is less than asked for.
func lacks(have, want resource.Vector) (name string, short bool) {
	for _, name := range want.Names() {
		if want[name] > have[name] {
			return name, true
		}
	}
	return "", false
}

func amounts(name string, want, have int64) constraint.Check {
	return constraint.Check{Name: name, Want: strconv.FormatInt(want, 10), Have: strconv.FormatInt(have, 10)}
}
