package match

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Roles. An executor may set shares of its resources aside, each for a role.
// Workers of that role use up its share first, and then what is common; all
// others have only what is common. What a worker holds is one amount, never
// split: of each resource,
//
//	set aside still = max(0, share − used by the role), for each role
//	common          = capacity − used − Σ set aside still
//
// so that a share that its role has not used is out of reach of everybody else,
// and what the role uses beyond it is taken from what is common. A lease of a
// role for which an executor sets nothing aside is as one without a role.

// share is what an executor sets aside for a role.
type share struct {
	// role is folded.
	role  string
	share resource.Vector
	// amounts are those of share, in the order of the shape's names.
	amounts []int64
}

// sharesOf answers what the executor sets aside, in order of role. Amounts of
// zero set nothing aside.
func sharesOf(reserved map[string]resource.Vector) []share {
	if len(reserved) == 0 {
		return nil
	}
	var shares []share
	for _, role := range slices.Sorted(maps.Keys(reserved)) {
		if reserved[role].Canonical() != "" {
			shares = append(shares, share{role: constraint.Fold(role), share: reserved[role]})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return strings.Compare(a.role, b.role) })
	return shares
}

// sharesKey tells shapes apart by what they set aside.
func sharesKey(shares []share) string {
	var b strings.Builder
	for _, s := range shares {
		fmt.Fprintf(&b, "|%s:%s", s.role, s.share.Canonical())
	}
	return b.String()
}

// shareOf answers the place of the role's share plus one, 0 for none.
func (s *Shape) shareOf(role string) int {
	if role == "" || len(s.shares) == 0 {
		return 0
	}
	folded := constraint.Fold(role)
	return 1 + slices.IndexFunc(s.shares, func(aside share) bool { return aside.role == folded })
}

// Allowed returns what an idle executor has for a role: all but the shares of others.
func (s *Shape) Allowed(role string) resource.Vector {
	allowed := s.resources
	own := s.shareOf(role)
	for i, share := range s.shares {
		if i+1 != own {
			allowed = allowed.Plus(-1, share.share)
		}
	}
	return allowed
}

// Excess names the first resource of which leases hold more than the executor may
// give; empty for none.
func (e *Executor) Excess() string {
	aside := resource.Vector{}
	for _, share := range e.shape.shares {
		for name, amount := range share.share {
			aside[name] += max(0, amount-e.Held.byRole[share.role][name])
		}
	}
	for _, name := range e.Held.Used.Plus(1, aside).Names() {
		used, capacity := e.Held.Used[name], e.shape.resources[name]
		switch {
		case used > capacity:
			return fmt.Sprintf("%s %d of %d", name, used, capacity)
		case used+aside[name] > capacity:
			return fmt.Sprintf("%s %d of %d, with %d set aside for roles", name, used, capacity, aside[name])
		}
	}
	return ""
}
