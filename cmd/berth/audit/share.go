package audit

import (
	"maps"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// usage has the amounts that leases use of an executor, in total and by role. The keys of
// byRole are case-folded. A usage is immutable.
type usage struct {
	used   resource.Vector
	byRole map[string]resource.Vector
}

// plus returns the usage after n more workers of a role.
func (u usage) plus(n int64, role string, each resource.Vector) usage {
	next := usage{u.used.Plus(n, each), maps.Clone(u.byRole)}
	if role != "" {
		role = constraint.Fold(role)
		next.byRole[role] = next.byRole[role].Plus(n, each)
	}
	return next
}

// claimed returns the use plus the unused part of each share. A lease without a role cannot
// use the claimed amounts.
func (u usage) claimed(shares map[string]resource.Vector) resource.Vector {
	claimed := u.used.Clone()
	for role, share := range shares {
		used := u.byRole[constraint.Fold(role)]
		for name, amount := range share {
			claimed[name] += max(0, amount-used[name])
		}
	}
	return claimed
}

// checkShares checks the reserved shares of an executor whose leases this revision changed.
// When an executor registers with new shares, older leases may already use them. So
// checkShares requires a grant that is newer than the record and a claim that grew.
func (a *Auditor) checkShares(ordinal uint32, e *executor, before usage) {
	if e.record == nil || len(e.record.Reserved) == 0 || e.granted <= e.recorded {
		return
	}
	capacity := e.capacity()
	claimed, was := e.claimed(e.record.Reserved), before.claimed(e.record.Reserved)
	for _, name := range claimed.Names() {
		imposed := a.step.imposed[ordinal][name]
		used, claim := e.used[name]-imposed, claimed[name]-imposed
		if claim > capacity[name] && claim > was[name] && used <= capacity[name] { // else a violation of CAPACITY
			a.violate(RuleShare, "%s: %s used %d of %d, with %d reserved for roles that do not use it",
				a.name(ordinal), name, used, capacity[name], claim-used)
		}
	}
}
