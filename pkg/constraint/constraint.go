// Package constraint decides which executors match a reservation, and so which reservations share a
// queue.
//
// Grouping and matching ignore case in the names and values of attributes, the SKU, pools and the role.
// A group depends on all constraints except those that do not select executors by kind: avoid, spread,
// sameShape and pack. The package imports only the standard library and pkg/resource.
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

// Constraints are the constraints of one reservation. They are not changed after construction.
type Constraints struct {
	// Resources is the use of each worker, including `slots`.
	Resources  resource.Vector
	SKU        string
	Attributes map[string]string
	Pools      []string
	Role       string

	SameShape bool
	Spread    Spread
	Pack      bool
	// Avoid lists executors that are never used. AvoidFailed lists executors on which workers
	// have failed: they are used only if no other executor matches. Berth sets AvoidFailed,
	// callers do not.
	Avoid       []string
	AvoidFailed []string
}

// Spread allows at most Max workers of a batch on executors that share the
// value of attribute By. Max 0 is no limit.
type Spread struct {
	By  string
	Max int32
}

// ByExecutor is the value of Spread.By that counts per executor. Its case is ignored.
const ByExecutor = "executor"

// Single reports whether workers are counted per executor.
func (s Spread) Single() bool { return strings.EqualFold(s.By, ByExecutor) }

// PoolAttribute is the attribute that names the pool of an executor that is in no other pool.
const PoolAttribute = "pool"

// Host contains the properties of an executor that constraints examine.
type Host struct {
	ID         string
	SKU        string
	Attributes map[string]string
	// Pools are the names of its pools.
	Pools []string
}

// Canonical returns a text that is equal for reservations in the same queue and different for others.
func (c Constraints) Canonical() string {
	c = c.Folded()
	var b strings.Builder
	fmt.Fprintf(&b, "resources:%s;sku:%s;attributes:", c.Resources.Canonical(), c.SKU)
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		fmt.Fprintf(&b, "%q=%q,", name, c.Attributes[name])
	}
	fmt.Fprintf(&b, ";pools:%s;role:%s", strings.Join(c.Pools, ","), c.Role)
	return b.String()
}

// Folded returns the constraints with every name and value that is compared without regard
// to case folded, and with each pool once, in order. All constraints of a group are equal
// when they are folded, except for preferences that do not define a group.
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

// Group returns the opaque ID of the queue, a digest of the canonical text.
func (c Constraints) Group() string {
	sum := sha256.Sum256([]byte(c.Canonical()))
	return hex.EncodeToString(sum[:8])
}

// Check is a constraint that an executor does not meet.
type Check struct {
	// Name is "sku", "attributes.zone", "pools", "avoid".
	Name       string
	Want, Have string
}

// Match reports whether an executor matches by kind, and otherwise returns the first failed check. The
// inventory checks resources and state.
func (c Constraints) Match(h Host) (ok bool, failed Check) { return c.Matcher().Match(h) }

// Matcher contains constraints that are prepared for matching many hosts.
type Matcher struct {
	constraints Constraints
	// names are the attribute names in the order of the checks.
	names []string
}

// Matcher prepares the constraints for many calls of Match.
func (c Constraints) Matcher() Matcher {
	return Matcher{c, slices.Sorted(maps.Keys(c.Attributes))}
}

// Match returns the same as Constraints.Match.
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
	// If there are several spellings, the smallest one is used, so that the result does not depend
	// on the order of the map.
	least, found := "", false
	for candidate := range attributes {
		if strings.EqualFold(candidate, name) && (!found || candidate < least) {
			least, found = candidate, true
		}
	}
	return attributes[least], found
}

// Fold returns one spelling for all strings that are equal by [strings.EqualFold].
func Fold(s string) string {
	return strings.Map(func(r rune) rune {
		// All spellings of a letter form an orbit. Some orbits of ASCII letters contain letters
		// of other scripts, which lowercasing alone would miss. Any member of the orbit will do
		// if it is always the same one.
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if least <= unicode.MaxASCII {
			return unicode.ToLower(least)
		}
		// Lowercasing other letters may leave the orbit: İ becomes i.
		return least
	}, s)
}
