package resource_test

import (
	"math"
	"math/big"
	"testing"

	"berth.dev/pkg/resource"
	_ "berth.dev/testkit/fixedseed"
	"pgregory.net/rapid"
)

type vector = resource.Vector

var (
	anyName   = rapid.SampledFrom([]string{"cpu", "memory", "gpu", "slots"})
	anyAmount = rapid.OneOf(rapid.Int64Range(-3, 10), rapid.Int64())
)

func drawVector(t *rapid.T, label string) vector {
	return vector(rapid.MapOf(anyName, anyAmount).Draw(t, label))
}

func TestWithSlots(t *testing.T) {
	for _, test := range []struct{ v, want vector }{
		{nil, vector{"slots": 1}},
		{vector{"cpu": 2}, vector{"cpu": 2, "slots": 1}},
		{vector{"slots": 0}, vector{"slots": 0}},
		{vector{"slots": 4}, vector{"slots": 4}},
	} {
		before := test.v.Clone()
		got := test.v.WithSlots()
		if n, named := got["slots"]; !named || n != test.want["slots"] || !got.Equal(test.want) {
			t.Errorf("%v with slots is %v, want %v", test.v, got, test.want)
		}
		if len(before) != len(test.v) {
			t.Errorf("WithSlots changed %v to %v", before, test.v)
		}
	}
}

// If an int64 can hold the sum, Plus is exact. Otherwise it returns the nearest int64, as
// long as the product alone fits or has the sign of the sum.
func TestPlusSaturates(t *testing.T) {
	for _, test := range []struct{ a, n, b, want int64 }{
		{1, 2, 3, 7},
		{5, -1, 5, 0},
		{math.MaxInt64, 1, 1, math.MaxInt64},
		{math.MinInt64, -1, 1, math.MinInt64},
		{0, 2, math.MaxInt64, math.MaxInt64},
		{0, -2, math.MaxInt64, math.MinInt64},
		{0, -1, math.MinInt64, math.MaxInt64},
		{0, math.MinInt64, -1, math.MaxInt64},
		{-1, math.MaxInt64, math.MaxInt64, math.MaxInt64 - 1},
	} {
		got := vector{"cpu": test.a}.Plus(test.n, vector{"cpu": test.b})["cpu"]
		if got != test.want {
			t.Errorf("%d + %d × %d = %d, want %d", test.a, test.n, test.b, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, n, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "n"), rapid.Int64().Draw(t, "b")
		product := clamp(new(big.Int).Mul(big.NewInt(n), big.NewInt(b)))
		want := clamp(new(big.Int).Add(big.NewInt(a), big.NewInt(product)))
		if got := (vector{"x": a}).Plus(n, vector{"x": b})["x"]; got != want {
			t.Fatalf("%d + %d × %d = %d, want %d", a, n, b, got, want)
		}
	})
}

func clamp(x *big.Int) int64 {
	switch {
	case x.IsInt64():
		return x.Int64()
	case x.Sign() > 0:
		return math.MaxInt64
	}
	return math.MinInt64
}

func TestPlusKeepsItsArguments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawVector(t, "v"), drawVector(t, "w")
		vText, wText := v.Canonical(), w.Canonical()
		sum := v.Plus(rapid.Int64Range(-3, 3).Draw(t, "n"), w)
		sum["cpu"] = 12345
		if v.Canonical() != vText || w.Canonical() != wText {
			t.Fatalf("v %s → %v, w %s → %v", vText, v, wText, w)
		}
	})
}

// Times returns the largest number n for which n times the vector fits.
func TestTimesIsTheLargestThatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := vector(rapid.MapOf(anyName, rapid.Int64Range(0, 30)).Draw(t, "free"))
		each := vector(rapid.MapOf(anyName, rapid.Int64Range(0, 5)).Draw(t, "each"))
		times := free.Times(each)
		if each.Canonical() == "" {
			if times != math.MaxInt64 {
				t.Fatalf("nothing fits %d times", times)
			}
			return
		}
		if !free.Fits(vector{}.Plus(times, each)) || free.Fits(vector{}.Plus(times+1, each)) {
			t.Fatalf("%v fits %d times into %v, want the largest number", each, times, free)
		}
	})
	if n := (vector{"cpu": -4}).Times(vector{"cpu": 1}); n != 0 {
		t.Errorf("negative free capacity fits %d", n)
	}
}

func TestFitsComparesByName(t *testing.T) {
	for _, test := range []struct {
		v, w vector
		want bool
	}{
		{vector{"cpu": 2}, vector{"cpu": 2}, true},
		{vector{"cpu": 2}, vector{"cpu": 3}, false},
		{vector{"cpu": 2}, vector{"gpu": 1}, false},
		{vector{"cpu": 2}, vector{"gpu": 0}, true},
		{nil, nil, true},
	} {
		if got := test.v.Fits(test.w); got != test.want {
			t.Errorf("%v fits into %v: %v", test.w, test.v, got)
		}
	}
}

// Equal, Compare and Canonical agree: they treat an absent name as zero.
func TestCanonicalIsEqualForEqualVectors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, w := drawVector(t, "v"), drawVector(t, "w")
		if rapid.Bool().Draw(t, "same") {
			w = v.Clone().Plus(0, vector{"other": 1})
		}
		equal := v.Equal(w)
		if equal != (v.Canonical() == w.Canonical()) || equal != w.Equal(v) {
			t.Fatalf("%v and %v: equal %v, %q and %q", v, w, equal, v.Canonical(), w.Canonical())
		}
	})
	if got := (vector{"slots": 1, "cpu": 4000, "gpu": 0}).Canonical(); got != "cpu=4000,slots=1" {
		t.Errorf("canonical is %q", got)
	}
}
