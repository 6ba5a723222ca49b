package audit

import (
	"maps"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// usage is what leases use of an executor: in all, and by folded role.
type usage struct {
	used   resource.Vector
	byRole map[string]resource.Vector
}

func (u usage) clone() usage {
	next := usage{used: maps.Clone(u.used)}
	for role, held := range u.byRole {
		next.hold(role, 1, held)
	}
	return next
}

// hold adds n workers to what a role holds. A role that holds nothing is not
// there.
func (u *usage) hold(role string, n int64, each resource.Vector) {
	held := u.byRole[role]
	if held == nil {
		held = resource.Vector{}
		if u.byRole == nil {
			u.byRole = map[string]resource.Vector{}
		}
		u.byRole[role] = held
	}
	for name, amount := range each {
		if held[name] += n * amount; held[name] == 0 {
			delete(held, name)
		}
	}
	if len(held) == 0 {
		delete(u.byRole, role)
	}
}

// claimed is what is used, and what is set aside and not used by its role: all
// that is out of reach of a lease without a role.
func (u usage) claimed(shares map[string]resource.Vector) resource.Vector {
	claimed := u.used.Clone()
	for role, share := range shares {
		held := u.byRole[constraint.Fold(role)]
		for name, amount := range share {
			claimed[name] += max(0, amount-held[name])
		}
	}
	return claimed
}

// checkShares looks at an executor whose leases this revision changed. What its
// agent set aside at a later registration was not there for the leases before:
// an executor is judged by grants that are newer than its record, and by what
// they made more.
func (a *Auditor) checkShares(ordinal uint32, e *executor, before usage) {
	if e.record == nil || len(e.record.Reserved) == 0 || e.granted <= e.recorded {
		return
	}
	capacity := e.capacity()
	claimed, was := e.claimed(e.record.Reserved), before.claimed(e.record.Reserved)
	for _, name := range claimed.Names() {
		used, claim := e.used[name], claimed[name]
		if claim > capacity[name] && claim > was[name] && used <= capacity[name] { // else CAPACITY says so
			a.violate(RuleShare, "%s: %s used %d of %d, with %d set aside for roles that do not use it",
				a.name(ordinal), name, used, capacity[name], claim-used)
		}
	}
}
