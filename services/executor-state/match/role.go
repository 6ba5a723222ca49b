package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Roles. An executor may set shares of its resources aside, each for a role. Workers of
// that role use the role's share first, and then the common part, so one worker may use
// both. All other workers use only the common part. For each resource,
//
//	still set aside = max(0, share − used by the role), for each role
//	common          = capacity − used − Σ still set aside
//
// Other workers cannot use the unused part of a share. The role's use above its share
// reduces the common part. A lease of a role for which an executor sets nothing aside
// counts like a lease without a role.

// share is the part of an executor that is set aside for a role.
type share struct {
	// role is folded.
	role  string
	share resource.Vector
	// amounts are the amounts of share, in the order of the layout.
	amounts []int64
}

// sharesOf returns the shares that an executor sets aside, in order of role. Zero amounts
// set nothing aside.
func sharesOf(reserved map[string]resource.Vector) (shares []share) {
	for _, role := range slices.Sorted(maps.Keys(reserved)) {
		if reserved[role].Canonical() != "" {
			shares = append(shares, share{role: constraint.Fold(role), share: reserved[role]})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return strings.Compare(a.role, b.role) })
	return shares
}

// sharesKey returns a text that is equal for equal shares.
func sharesKey(shares []share) string {
	var b strings.Builder
	for _, s := range shares {
		fmt.Fprintf(&b, "|%s:%s", s.role, s.share.Canonical())
	}
	return b.String()
}

// Allowed returns what an idle executor has for a role: all its resources except the
// shares of other roles.
func (s *Shape) Allowed(role string) resource.Vector {
	allowed, folded := s.resources, constraint.Fold(role)
	for _, share := range s.shares {
		if role == "" || share.role != folded {
			allowed = allowed.Plus(-1, share.share)
		}
	}
	return allowed
}

// Excess describes the first resource of which leases use more than they may, and how
// much they use; empty if there is none.
func (e *Executor) Excess() string {
	aside := resource.Vector{}
	for _, share := range e.shape.shares {
		for name, amount := range share.share {
			aside[name] += max(0, amount-e.Leased.byRole[share.role][name])
		}
	}
	for _, name := range e.Leased.Used.Plus(1, aside).Names() {
		used, capacity := e.Leased.Used[name], e.shape.resources[name]
		switch {
		case used > capacity:
			return fmt.Sprintf("%s %d of %d", name, used, capacity)
		case used+aside[name] > capacity:
			return fmt.Sprintf("%s %d of %d, with %d set aside for roles", name, used, capacity, aside[name])
		}
	}
	return ""
}
