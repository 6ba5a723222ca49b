package audit

import (
	"fmt"
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// Quiesced answers what must not be left over once nothing is in flight. It
// judges the state as it is and notes nothing: while something is in flight, ask
// again later. What an executor uses is the sum of the leases on it, so it is
// explained when every lease is.
func (a *Auditor) Quiesced() []Violation {
	var found []Violation
	add := func(rule Rule, format string, args ...any) {
		if len(found) < MaxViolations {
			found = append(found, Violation{a.stats.Revision, rule, fmt.Sprintf(format, args...)})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.versions)) {
		v := a.versions[uid]
		if len(v.lease) > 0 && !v.living() {
			add(RuleLeaseOwner, "%s holds a lease while %s", v, v.state())
		}
		if v.r == nil && (v.header != nil || len(v.tasks) > 0) {
			add(RuleTaskOwner, "%s has a task and no reservation", v)
		}
		if v.r != nil && v.r.State == model.Queued && v.header == nil {
			continue // being dispatched
		}
		for _, p := range v.placements() {
			w, found := v.assignment(p.Worker)
			if !found || w.State.Terminal() {
				add(RuleLeaseOwner, "%s: worker %s is leased %s and %s", v, p.Worker, a.name(p.Ordinal), orAbsent(w.State))
			}
		}
	}
	return found
}
