package audit

import (
	"fmt"
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// Quiesced returns the violations of the rules that hold once nothing is in flight. It does
// not add them to Violations, because these violations are temporary while something is in
// flight. No rule compares the use of an executor with its leases: the auditor computes the
// use from the leases.
func (a *Auditor) Quiesced() []Violation {
	var found []Violation
	add := func(rule Rule, format string, args ...any) {
		if len(found) < MaxViolations {
			found = append(found, Violation{a.stats.Revision, rule, fmt.Sprintf(format, args...)})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.versions)) {
		v := a.versions[uid]
		if !v.leaseOver() && !v.unfinished() {
			add(RuleLeaseOwner, "%s holds a lease while %s", v, v.state())
		}
		if v.offer.record != nil && !v.unfinished() {
			add(RuleOffer, "%s has an offer while %s", v, v.state())
		}
		if v.r == nil && (v.header != nil || len(v.tasks) > 0) && !v.mayRun() {
			add(RuleTaskOwner, "%s has a task and no reservation", v)
		}
		if v.r != nil && v.r.State == model.Queued && v.header == nil {
			continue // being dispatched
		}
		for _, p := range v.placements() {
			w, found := v.assignment(p.Worker)
			if !found || !w.Occupies() {
				add(RuleLeaseOwner, "%s: worker %s is leased %s and %s", v, p.Worker, a.name(p.Ordinal), stateOf(&w))
			}
		}
	}
	return found
}
