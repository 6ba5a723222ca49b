// Package constraint gives two reservations the same group, and so the same queue,
// exactly if the constraints that define a group are equal. It also decides which
// executors match a reservation.
//
// Grouping and matching ignore case in the names and values of attributes, the SKU, pools
// and the role. A group depends on all constraints except avoid, spread, sameShape and
// pack, which do not select executors by kind. The package imports only the standard
// library and pkg/resource.
package constraint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"berth.dev/pkg/resource"
)

// Constraints has the constraints of one reservation. It must not be changed after
// construction.
type Constraints struct {
	// Resources is the amount of each resource that one worker uses, including `slots`.
	Resources  resource.Vector
	SKU        string
	Attributes map[string]string
	// Defaults has the names in Attributes that the request did not name, in order. Only
	// Berth sets it. It does not affect grouping and matching.
	Defaults []string
	Pools    []string
	Role     string

	SameShape bool
	Spread    Spread
	Pack      bool
	// Avoid lists executors that the reservation never uses. AvoidFailed lists executors on
	// which workers have failed: the reservation uses them only if no other executor
	// matches. RefusedBy lists those of AvoidFailed whose allow-lists refused the task: the same
	// applies to executors with equal lists. Only Berth sets AvoidFailed and RefusedBy.
	Avoid       []string
	AvoidFailed []string
	RefusedBy   []string
	// Cells places all workers into one cell. Then Attributes, Pools, Avoid and AvoidFailed
	// select among the cells, and the cell gets the other constraints.
	Cells bool
}

// Spread allows at most Max workers of a batch on executors that share the
// value of attribute By. Max 0 is no limit.
type Spread struct {
	By  string
	Max int32
}

// ByExecutor is the value of Spread.By for a limit on each executor. Its case is ignored.
const ByExecutor = "executor"

// Single reports whether the limit applies to each single executor.
func (s Spread) Single() bool { return strings.EqualFold(s.By, ByExecutor) }

// PoolAttribute is the name of the attribute that names the pool of an executor that is
// in no other pool.
const PoolAttribute = "pool"

// Host contains the properties of an executor that constraints examine.
type Host struct {
	ID         string
	SKU        string
	Attributes map[string]string
	// Pools has the names of the executor's pools.
	Pools []string
}

// Canonical returns a text that is equal for reservations of the same group and different
// for reservations of different groups.
func (c Constraints) Canonical() string {
	c = c.Folded()
	var b strings.Builder
	fmt.Fprintf(&b, "resources:%s;sku:%s;attributes:", c.Resources.Canonical(), c.SKU)
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		fmt.Fprintf(&b, "%q=%q,", name, c.Attributes[name])
	}
	fmt.Fprintf(&b, ";pools:%s;role:%s", strings.Join(c.Pools, ","), c.Role)
	if c.Cells {
		b.WriteString(";cells")
	}
	return b.String()
}

// Folded returns the constraints with case folded in every name and value that is
// compared without regard to case. It also sorts the pools and removes duplicates. Within
// a group, all folded constraints are equal except for avoid, spread, sameShape and pack.
func (c Constraints) Folded() Constraints {
	c.SKU, c.Role = Fold(c.SKU), Fold(c.Role)
	attributes := make(map[string]string, len(c.Attributes))
	for name, value := range c.Attributes {
		attributes[Fold(name)] = Fold(value)
	}
	pools := make([]string, 0, len(c.Pools))
	for _, pool := range c.Pools {
		pools = append(pools, Fold(pool))
	}
	slices.Sort(pools)
	c.Attributes, c.Pools = attributes, slices.Compact(pools)
	return c
}

// WithDefaults returns the constraints with the default attributes that they do not name.
func (c Constraints) WithDefaults(defaults map[string]string) Constraints {
	c = c.Requested()
	requested := c.Attributes
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, named := lookup(requested, name); named {
			continue
		}
		if len(c.Defaults) == 0 {
			c.Attributes = make(map[string]string, len(requested)+len(defaults))
			maps.Copy(c.Attributes, requested)
		}
		c.Attributes[name] = defaults[name]
		c.Defaults = append(c.Defaults, name)
	}
	return c
}

// DefaultValues returns the attributes that the request did not name.
func (c Constraints) DefaultValues() map[string]string {
	values := make(map[string]string, len(c.Defaults))
	for _, name := range c.Defaults {
		values[name] = c.Attributes[name]
	}
	return values
}

// Requested returns the constraints without the attributes that the request did not name.
func (c Constraints) Requested() Constraints {
	if len(c.Defaults) == 0 {
		return c
	}
	c.Attributes = maps.Clone(c.Attributes)
	for _, name := range c.Defaults {
		delete(c.Attributes, name)
	}
	c.Defaults = nil
	return c
}

// Group returns the opaque ID of the group, which is a digest of the canonical text.
func (c Constraints) Group() string { return c.GroupOf("") }

// GroupOf returns the opaque ID of a group with these constraints that belongs to an owner.
// The digest is of the canonical text with the owner at its end.
func (c Constraints) GroupOf(owner string) string {
	sum := sha256.Sum256([]byte(c.Canonical() + owner))
	return hex.EncodeToString(sum[:8])
}

// Check is a constraint that an executor does not satisfy.
type Check struct {
	// Name names the constraint, for example "sku", "attributes.zone", "pools" or "avoid".
	Name       string
	Want, Have string
}

// Match reports whether an executor matches, apart from its resources and state, which
// the inventory checks. If the executor does not match, Match returns the first failed
// check.
func (c Constraints) Match(h Host) (ok bool, failed Check) { return c.Matcher().Match(h) }

// Matcher contains constraints that are prepared for matching with many hosts.
type Matcher struct {
	constraints Constraints
	// names has the attribute names in the order of the checks.
	names []string
}

// Matcher prepares the constraints for many calls of Match.
func (c Constraints) Matcher() Matcher {
	return Matcher{c, slices.Sorted(maps.Keys(c.Attributes))}
}

// Match returns the same result as Constraints.Match.
func (m Matcher) Match(h Host) (ok bool, failed Check) {
	c := m.constraints
	if c.SKU != "" && !strings.EqualFold(c.SKU, h.SKU) {
		return false, Check{"sku", c.SKU, h.SKU}
	}
	for _, name := range m.names {
		have, found := lookup(h.Attributes, name)
		if !found || !strings.EqualFold(have, c.Attributes[name]) {
			return false, Check{"attributes." + name, c.Attributes[name], have}
		}
	}
	if len(c.Pools) > 0 && !slices.ContainsFunc(c.Pools, h.InPool) {
		return false, Check{"pools", strings.Join(c.Pools, ","), strings.Join(h.Pools, ",")}
	}
	if slices.Contains(c.Avoid, h.ID) {
		return false, Check{"avoid", "another executor", h.ID}
	}
	return true, Check{}
}

// InPool reports whether the host is in the pool of that name, ignoring case.
func (h Host) InPool(name string) bool {
	return slices.ContainsFunc(h.Pools, func(pool string) bool { return strings.EqualFold(pool, name) })
}

// Attribute returns the value of an attribute, ignoring case in its name.
func (h Host) Attribute(name string) string {
	value, _ := lookup(h.Attributes, name)
	return value
}

func lookup(attributes map[string]string, name string) (string, bool) {
	if value, ok := attributes[name]; ok {
		return value, true
	}
	// If several names differ only in case, the first in byte order is used, so that the
	// result does not depend on the order of the map.
	least, found := "", false
	for candidate := range attributes {
		if strings.EqualFold(candidate, name) && (!found || candidate < least) {
			least, found = candidate, true
		}
	}
	return attributes[least], found
}

// Fold returns the same spelling for all strings that are equal by [strings.EqualFold].
func Fold(s string) string {
	return strings.Map(func(r rune) rune {
		// All spellings of a letter form an orbit. Some orbits of ASCII letters contain letters
		// of other scripts, which lowercasing alone would miss. Fold chooses the smallest
		// member of an orbit, so that the choice is always the same.
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if least <= unicode.MaxASCII {
			return unicode.ToLower(least)
		}
		// Other letters are not lowercased, because the result may be outside the orbit: İ
		// becomes i.
		return least
	}, s)
}
