// Package resource is arithmetic on integer resource vectors.
//
// A Vector maps a resource's name to an amount in base units: `cpu` in
// thousandths of a core, `memory` and `disk` in bytes, any other name in ones.
// Any name works; a name that is absent counts as zero. Vectors are values:
// no function here changes its arguments. The package imports nothing but the
// standard library.
package resource

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Slots is the resource that every worker takes 1 of and every executor offers
// 1 of, unless they say otherwise.
const Slots = "slots"

// Vector is an amount of each named resource.
type Vector map[string]int64

// WithSlots answers v with `slots` set to 1 where v does not name it.
func (v Vector) WithSlots() Vector {
	if _, ok := v[Slots]; ok {
		return v
	}
	w := make(Vector, len(v)+1)
	maps.Copy(w, v)
	w[Slots] = 1
	return w
}

// Clone answers a copy; nil stays nil.
func (v Vector) Clone() Vector { return maps.Clone(v) }

// Plus answers v + n*w. Sums saturate at the largest int64.
func (v Vector) Plus(n int64, w Vector) Vector {
	sum := make(Vector, max(len(v), len(w)))
	maps.Copy(sum, v)
	for name, amount := range w {
		sum[name] = addSaturating(sum[name], mulSaturating(n, amount))
	}
	return sum
}

// Fits says whether w fits into v, resource by resource.
func (v Vector) Fits(w Vector) bool {
	for name, amount := range w {
		if amount > v[name] {
			return false
		}
	}
	return true
}

// Times answers how many times w fits into v: the least over the resources of
// which w asks something. Without any it answers math.MaxInt64.
func (v Vector) Times(w Vector) int64 {
	times := int64(math.MaxInt64)
	for name, amount := range w {
		if amount > 0 {
			times = min(times, max(0, v[name])/amount)
		}
	}
	return times
}

// Equal compares, absent names counting as zero.
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

// Names answers the names in order.
func (v Vector) Names() []string { return slices.Sorted(maps.Keys(v)) }

// Canonical is equal for equal vectors and differs for others: `cpu=4000,slots=1`.
// Zero amounts are left out.
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
