package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
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
func sharesOf(e *model.Executor) []share {
	if len(e.Reserved) == 0 {
		return nil
	}
	var shares []share
	for _, role := range slices.Sorted(maps.Keys(e.Reserved)) {
		if e.Reserved[role].Canonical() != "" {
			shares = append(shares, share{role: constraint.Fold(role), share: e.Reserved[role]})
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
func (s *shape) shareOf(role string) int {
	if role == "" || len(s.shares) == 0 {
		return 0
	}
	folded := constraint.Fold(role)
	return 1 + slices.IndexFunc(s.shares, func(aside share) bool { return aside.role == folded })
}

// allowed is what an idle executor has for the role: all but the shares of
// others.
func (s *shape) allowed(role string) resource.Vector {
	allowed := s.resources
	own := s.shareOf(role)
	for i, share := range s.shares {
		if i+1 != own {
			allowed = allowed.Plus(-1, share.share)
		}
	}
	return allowed
}

// count adds n workers of a role to what an executor holds.
func (h *hold) count(n int, each resource.Vector, role string) {
	h.workers += n
	addTo(h.used, n, each)
	if role == "" {
		return
	}
	role = constraint.Fold(role)
	if h.byRole[role] == nil {
		if h.byRole == nil {
			h.byRole = map[string]resource.Vector{}
		}
		h.byRole[role] = resource.Vector{}
	}
	addTo(h.byRole[role], n, each)
	if len(h.byRole[role]) == 0 {
		delete(h.byRole, role)
	}
}

// addTo adds n times each; a resource of which nothing is left goes.
func addTo(used resource.Vector, n int, each resource.Vector) {
	for name, amount := range each {
		if sum := used[name] + int64(n)*amount; sum != 0 {
			used[name] = sum
		} else {
			delete(used, name)
		}
	}
}

// excess names the first resource of which the executor holds more than it
// may.
func (h *host) excess() string {
	aside := resource.Vector{}
	for _, share := range h.shape.shares {
		for name, amount := range share.share {
			aside[name] += max(0, amount-h.hold.byRole[share.role][name])
		}
	}
	for _, name := range h.hold.used.Plus(1, aside).Names() {
		used, capacity := h.hold.used[name], h.shape.resources[name]
		switch {
		case used > capacity:
			return fmt.Sprintf("%s %d of %d", name, used, capacity)
		case used+aside[name] > capacity:
			return fmt.Sprintf("%s %d of %d, with %d set aside for roles", name, used, capacity, aside[name])
		}
	}
	return ""
}

// reserved checks the shares set aside of a capacity.
func (v *violations) reserved(shares map[string]resource.Vector, capacity resource.Vector) {
	if len(shares) > model.MaxAttributes {
		v.add(fault.ReasonTooLarge, "reserved", "at most %d, are %d", model.MaxAttributes, len(shares))
	}
	folded := map[string]string{}
	left := capacity.Clone()
	for _, role := range slices.Sorted(maps.Keys(shares)) {
		field := "reserved." + role
		v.name(field, role, maxName)
		if other, ok := folded[constraint.Fold(role)]; ok {
			v.add(fault.ReasonDuplicate, field, "is the same as %q but for case", other)
		}
		folded[constraint.Fold(role)] = role
		for _, name := range shares[role].Names() {
			amount := shares[role][name]
			switch {
			case amount < 0:
				v.add(fault.ReasonInvalid, field+"."+name, "must not be negative, is %d", amount)
			case amount > left[name]:
				v.add(fault.ReasonTooLarge, field+"."+name, "sets %d aside, and with the roles before it more than the %d there are", amount, capacity[name])
			default:
				left[name] -= amount
			}
		}
	}
}
