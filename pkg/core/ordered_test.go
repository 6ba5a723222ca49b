package core_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/core"
)

// After the same changes, an ordered set has the same items as a sorted slice.
func TestOrderedEqualsSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set, list := core.NewOrdered(cmp.Compare[int]), []int{}
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			// Whole ranges of items make nodes split and become empty.
			from := rapid.IntRange(0, 3000).Draw(t, "from")
			end := from + rapid.SampledFrom([]int{1, 100, 700}).Draw(t, "run")
			for n := from; n < end; n++ {
				at, found := slices.BinarySearch(list, n)
				if got := set.Delete(n); got != found {
					t.Fatalf("deleted %d: %v, want %v", n, got, found)
				}
				if found {
					list = slices.Delete(list, at, at+1)
				} else {
					list = slices.Insert(list, at, n)
					set.Insert(n)
				}
			}
			if got := slices.Collect(set.All()); !slices.Equal(got, list) || set.Len() != len(list) {
				t.Fatalf("got %v, want %v", got, list)
			}
			probe := rapid.IntRange(-1, 3800).Draw(t, "probe")
			rank, _ := slices.BinarySearch(list, probe)
			if got := set.Rank(probe); got != rank {
				t.Fatalf("rank of %d: %d, want %d", probe, got, rank)
			}
			if got := slices.Collect(set.From(probe)); !slices.Equal(got, list[rank:]) {
				t.Fatalf("from %d: %v, want %v", probe, got, list[rank:])
			}
			if first, ok := set.First(); ok != (len(list) > 0) || ok && first != list[0] {
				t.Fatalf("first: %d, %v", first, ok)
			}
			if len(list) > 0 {
				at := rapid.IntRange(0, len(list)-1).Draw(t, "at")
				if got := set.At(at); got != list[at] {
					t.Fatalf("at %d: %d, want %d", at, got, list[at])
				}
			}
		}
	})
}

func TestRemovePanicsIfTheItemIsMissing(t *testing.T) {
	set := core.NewOrdered(cmp.Compare[int])
	set.Insert(1)
	defer func() {
		if recover() == nil {
			t.Error("Remove of a missing item did not panic")
		}
	}()
	set.Remove(2)
}
