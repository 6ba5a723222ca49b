// Package constraint says which executors will do for a reservation, and which
// reservations therefore share one queue.
//
// Grouping and matching follow one rule: names and values of attributes, the
// SKU, pools and the role are compared without regard to case. A group is made
// of everything but the wishes that do not choose among executors by kind:
// avoid, spread, sameShape and pack. The package imports nothing but the
// standard library and pkg/resource.
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

// Constraints of one reservation. It is immutable once built.
type Constraints struct {
	// Resources is what each worker takes, `slots` included.
	Resources  resource.Vector
	SKU        string
	Attributes map[string]string
	Pools      []string
	Role       string

	SameShape bool
	Spread    Spread
	Pack      bool
	// Avoid are executors that are never used. AvoidFailed are those that Berth
	// itself avoids, for workers failed on them: they are used only when nothing
	// else matches. Callers do not set AvoidFailed.
	Avoid       []string
	AvoidFailed []string
}

// Spread allows at most Max workers of a batch on executors that share the
// value of attribute By. Max 0 is no limit.
type Spread struct {
	By  string
	Max int32
}

// ByExecutor is the Spread.By that counts single executors, in whatever case.
const ByExecutor = "executor"

// Single says whether single executors are counted.
func (s Spread) Single() bool { return strings.EqualFold(s.By, ByExecutor) }

// PoolAttribute is the attribute that puts an executor into the pool of that
// name, where no pool of it is known otherwise.
const PoolAttribute = "pool"

// Host is what an executor is, as far as constraints look at it.
type Host struct {
	ID         string
	SKU        string
	Attributes map[string]string
	// Pools are the names of the pools that it is in.
	Pools []string
}

// Canonical is the text that groups go by: equal for reservations that wait in
// one queue, different for others.
func (c Constraints) Canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "resources:%s;", c.Resources.Canonical())
	fmt.Fprintf(&b, "sku:%s;", Fold(c.SKU))
	attributes := make(map[string]string, len(c.Attributes))
	for name, value := range c.Attributes {
		attributes[Fold(name)] = Fold(value)
	}
	b.WriteString("attributes:")
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		fmt.Fprintf(&b, "%q=%q,", name, attributes[name])
	}
	pools := make([]string, 0, len(c.Pools))
	for _, pool := range c.Pools {
		pools = append(pools, Fold(pool))
	}
	slices.Sort(pools)
	fmt.Fprintf(&b, ";pools:%s;role:%s", strings.Join(slices.Compact(pools), ","), Fold(c.Role))
	return b.String()
}

// Group is the opaque id of the queue: a digest of the canonical text.
func (c Constraints) Group() string {
	sum := sha256.Sum256([]byte(c.Canonical()))
	return hex.EncodeToString(sum[:8])
}

// Check is one rule that an executor did not meet.
type Check struct {
	// Name is "sku", "attributes.zone", "pools", "avoid".
	Name       string
	Want, Have string
}

// Match says whether the kind of the executor is right, and if not, the first
// check that failed. Resources and state are the inventory's to look at.
func (c Constraints) Match(h Host) (ok bool, failed Check) { return c.Matcher().Match(h) }

// Matcher is constraints made ready to be matched against many hosts.
type Matcher struct {
	constraints Constraints
	// names are those of the attributes, in the order of checks.
	names []string
}

// Matcher prepares for many calls of Match.
func (c Constraints) Matcher() Matcher {
	return Matcher{c, slices.Sorted(maps.Keys(c.Attributes))}
}

// Match answers the same as that of the constraints.
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

// InPool says whether the host is in the pool of that name, without regard to
// case.
func (h Host) InPool(name string) bool {
	return slices.ContainsFunc(h.Pools, func(pool string) bool { return strings.EqualFold(pool, name) })
}

// Attribute reads an attribute of a host by name, without regard to case.
func (h Host) Attribute(name string) string {
	value, _ := lookup(h.Attributes, name)
	return value
}

func lookup(attributes map[string]string, name string) (string, bool) {
	if value, ok := attributes[name]; ok {
		return value, true
	}
	// Of several spellings the least counts, whatever the order of the map.
	least, found := "", false
	for candidate := range attributes {
		if strings.EqualFold(candidate, name) && (!found || candidate < least) {
			least, found = candidate, true
		}
	}
	return attributes[least], found
}

// Fold answers the one spelling of all that are equal without regard to case,
// by the same rule as [strings.EqualFold].
func Fold(s string) string {
	return strings.Map(func(r rune) rune {
		// All spellings of a letter form a ring; some letters of other
		// scripts stand in that of an ASCII one, which lowering alone
		// would miss. Any member does, if it is always the same.
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if least <= unicode.MaxASCII {
			return unicode.ToLower(least)
		}
		// Lowering others may leave the ring: İ becomes i.
		return least
	}, s)
}
