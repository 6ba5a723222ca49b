package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "berth.dev/testkit/fixedseed"
)

// genWorkers draws distinct indexes in any order. Their numbers are close to each other.
func genWorkers(t *rapid.T, label string) []WorkerID {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) WorkerID {
		return WorkerID{rapid.Int32Range(0, 40).Draw(t, "index"), rapid.Int32Range(1, 3).Draw(t, "number")}
	}), 0, 30, func(s WorkerID) int32 { return s.Index }).Draw(t, label)
}

func sorted(list []WorkerID) []WorkerID {
	list = slices.Clone(list)
	slices.SortFunc(list, WorkerID.Compare)
	return list
}

// A worker set has the same workers as the list that it was made from.
func TestWorkerSetsHaveTheirWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, other := genWorkers(t, "list"), genWorkers(t, "other")
		set, otherSet := WorkerSetOf(list), WorkerSetOf(other)

		if got := set.List(); !slices.Equal(got, sorted(list)) {
			t.Fatalf("list %v became %v", sorted(list), got)
		}
		if set.Len() != len(list) {
			t.Fatalf("%d workers, Len() = %d", len(list), set.Len())
		}
		for index := int32(-1); index <= 41; index++ {
			i := slices.IndexFunc(list, func(s WorkerID) bool { return s.Index == index })
			number, ok := set.Number(index)
			if ok != (i >= 0) || ok && number != list[i].Number {
				t.Fatalf("Number(%d) = %d, %v in %v", index, number, ok, list)
			}
			for number := int32(1); number <= 3; number++ {
				if set.Has(WorkerID{index, number}) != slices.Contains(list, WorkerID{index, number}) {
					t.Fatalf("Has(%d.%d) returned a wrong result in %v", index, number, list)
				}
			}
		}
		subset := !slices.ContainsFunc(list, func(s WorkerID) bool { return !slices.Contains(other, s) })
		if set.SubsetOf(otherSet) != subset {
			t.Fatalf("%v subset of %v: want %v", set, otherSet, subset)
		}
		if set.Equal(otherSet) != slices.Equal(sorted(list), sorted(other)) {
			t.Fatalf("Equal(%v, %v)", set, otherSet)
		}
		raised := set.Raise(otherSet)
		for index := int32(0); index <= 40; index++ {
			a, _ := set.Number(index)
			b, _ := otherSet.Number(index)
			if got, _ := raised.Number(index); got != max(a, b) {
				t.Fatalf("Raise at %d: %d of %d and %d", index, got, a, b)
			}
		}
		left := slices.DeleteFunc(set.List(), func(s WorkerID) bool { _, has := otherSet.Number(s.Index); return has })
		if got, want := set.Minus(otherSet), WorkerSetOf(left); !got.Equal(want) {
			t.Fatalf("%v minus %v is %v, want %v", set, otherSet, got, want)
		}
		below := slices.DeleteFunc(set.List(), func(s WorkerID) bool {
			n, _ := otherSet.Number(s.Index)
			return n <= s.Number
		})
		if got, want := set.Below(otherSet), WorkerSetOf(below); !got.Equal(want) {
			t.Fatalf("%v below %v is %v, want %v", set, otherSet, got, want)
		}
		if err := set.Check(len(list)); err != nil {
			t.Fatalf("Check of %v: %v", set, err)
		}
		if err := set.Check(len(list) - 1); err == nil && len(list) > 0 {
			t.Fatalf("Check passes %v as %d workers", set, len(list)-1)
		}
		if want := WorkerSetOf(raised.List()); !raised.Equal(want) {
			t.Fatalf("Raise makes runs %v, want %v", raised, want)
		}
		for i := 1; i < len(set); i++ {
			before, run := set[i-1], set[i]
			if run.First <= before.Last || run.First == before.Last+1 && run.Number == before.Number {
				t.Fatalf("runs %v and %v should be in order, apart or of two numbers", before, run)
			}
		}
	})
}

func TestWorkerSetsKeepTheFirstOfTwoNumbersOfOneIndex(t *testing.T) {
	got := WorkerSetOf([]WorkerID{{2, 5}, {1, 1}, {2, 4}})
	if want := (WorkerSet{{1, 1, 1}, {2, 2, 4}}); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// If WorkerSetOf could not have returned a set, Check refuses the set before it counts the
// workers.
func TestImpossibleWorkerSetsAreRefused(t *testing.T) {
	for _, bad := range []WorkerSet{
		{{0, 1<<31 - 1, 1}}, {{-5, 3, 1}}, {{3, 2, 1}}, {{0, 1, 0}}, {{0, 1, -1}}, {{0, 1, MaxNumber + 1}},
		{{0, 3, 1}, {3, 4, 2}}, {{4, 5, 1}, {0, 1, 1}}, {{0, MaxWorkers, 1}},
		{{0, MaxWorkers - 1, 1}, {MaxIndex, MaxIndex, 1}},
	} {
		if bad.Check(MaxWorkers) == nil {
			t.Errorf("%v passes", bad)
		}
	}
	if err := (WorkerSet{{0, MaxWorkers - 1, 1}}).Check(MaxWorkers); err != nil {
		t.Error(err)
	}
}

func TestWorkerSetIterationStops(t *testing.T) {
	for workerID := range (WorkerSet{{0, 9, 1}}).All() {
		if workerID.Index == 3 {
			break
		}
		if workerID.Index > 3 {
			t.Fatal("the iteration continued after break")
		}
	}
	// The last possible index must not overflow.
	if got := (WorkerSet{{1<<31 - 2, 1<<31 - 1, 1}}).List(); len(got) != 2 {
		t.Errorf("at the end of the index range: %v", got)
	}
}

func TestStrings(t *testing.T) {
	key := Key{"etl", "map", "main"}
	if got := key.String(); got != "etl/map/main" {
		t.Errorf("key %q", got)
	}
	worker := Worker{"etl", "map", WorkerID{3, 2}}
	if got := worker.String(); got != "etl/map/3.2" {
		t.Errorf("worker %q", got)
	}
	keys := []Key{{"b", "a", "a"}, {"a", "b", "a"}, {"a", "a", "b"}, {"a", "a", "a"}}
	slices.SortFunc(keys, Key.Compare)
	if want := []Key{{"a", "a", "a"}, {"a", "a", "b"}, {"a", "b", "a"}, {"b", "a", "a"}}; !slices.Equal(keys, want) {
		t.Errorf("order %v", keys)
	}
}
