package queue

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The treap against a sorted slice.
func TestTreeIsASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clever, obvious := newTree(cmp.Compare[int]), []int{}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			value := rapid.IntRange(0, 50).Draw(t, "value")
			at, found := slices.BinarySearch(obvious, value)
			if got := clever.rank(value); got != at {
				t.Fatalf("rank(%d) = %d, want %d", value, got, at)
			}
			if !found && rapid.Bool().Draw(t, "insert") {
				clever.insert(value)
				obvious = slices.Insert(obvious, at, value)
			} else {
				if clever.delete(value) != found {
					t.Fatalf("delete(%d) does not answer %v", value, found)
				}
				if found {
					obvious = slices.Delete(obvious, at, at+1)
				}
			}
			if clever.len() != len(obvious) {
				t.Fatalf("len %d, want %d", clever.len(), len(obvious))
			}
		}
		for i, want := range obvious {
			if got := clever.at(i); got != want {
				t.Fatalf("at(%d) = %d, want %d", i, got, want)
			}
		}
		start := rapid.IntRange(0, len(obvious)).Draw(t, "start")
		if got := slices.Collect(clever.from(start)); !slices.Equal(got, obvious[start:]) {
			t.Fatalf("from(%d) = %v, want %v", start, got, obvious[start:])
		}
	})
}

// A queue filled in order, as queues are, stays shallow.
func TestTreeStaysShallow(t *testing.T) {
	set := newTree(cmp.Compare[int])
	for i := range 100_000 {
		set.insert(i)
	}
	if depth := set.root.depth(); depth > 60 {
		t.Errorf("100,000 elements in order make a tree of depth %d", depth)
	}
}

func (n *node[T]) depth() int {
	if n == nil {
		return 0
	}
	return 1 + max(n.left.depth(), n.right.depth())
}
