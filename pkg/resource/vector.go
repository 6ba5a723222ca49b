// Package resource computes with integer resource vectors and never overflows: sums
// saturate.
//
// A Vector maps the name of a resource to an amount in base units: `cpu` in thousandths
// of a core, `memory` and `disk` in bytes, any other resource in whole units. Every name
// is permitted. A missing name means an amount of zero. Functions of this package do not
// change their arguments. The package imports only the standard library.
package resource

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Slots is the resource of which every worker uses 1 and every executor offers 1 by default.
const Slots = "slots"

// Vector is an amount of each named resource.
type Vector map[string]int64

// WithSlots returns v, with `slots` set to 1 if v does not contain it.
func (v Vector) WithSlots() Vector {
	if _, ok := v[Slots]; ok {
		return v
	}
	w := make(Vector, len(v)+1)
	maps.Copy(w, v)
	w[Slots] = 1
	return w
}

// Clone returns a copy. The copy of nil is nil.
func (v Vector) Clone() Vector { return maps.Clone(v) }

// Plus returns v + n*w. Products and sums saturate at the smallest and the largest int64.
func (v Vector) Plus(n int64, w Vector) Vector {
	sum := make(Vector, max(len(v), len(w)))
	maps.Copy(sum, v)
	for name, amount := range w {
		sum[name] = addSaturating(sum[name], mulSaturating(n, amount))
	}
	return sum
}

// Fits reports whether w fits into v: each amount of w is at most the same amount of v.
func (v Vector) Fits(w Vector) bool {
	for name, amount := range w {
		if amount > v[name] {
			return false
		}
	}
	return true
}

// Times returns how many times w fits into v: the minimum over the resources with a
// positive amount in w. If w has no such resource, it returns math.MaxInt64.
func (v Vector) Times(w Vector) int64 {
	times := int64(math.MaxInt64)
	for name, amount := range w {
		if amount > 0 {
			times = min(times, max(0, v[name])/amount)
		}
	}
	return times
}

// Equal reports whether v and w are equal. A missing name means zero.
func (v Vector) Equal(w Vector) bool {
	for name, amount := range v {
		if w[name] != amount {
			return false
		}
	}
	for name, amount := range w {
		if v[name] != amount {
			return false
		}
	}
	return true
}

// Names returns the names in order.
func (v Vector) Names() []string { return slices.Sorted(maps.Keys(v)) }

// Canonical returns a text that is equal for equal vectors and different for others:
// `cpu=4000,slots=1`. The text omits zero amounts.
func (v Vector) Canonical() string {
	var b strings.Builder
	for _, name := range v.Names() {
		if v[name] == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%d", name, v[name])
	}
	return b.String()
}

func addSaturating(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

func mulSaturating(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	p := a * b
	if p/b != a || (a == -1 && b == math.MinInt64) || (b == -1 && a == math.MinInt64) {
		if (a < 0) == (b < 0) {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return p
}
