package policy

import "testing"

// Marks sort by executor ID and not by their text, in which '-' is less than '/'.
func TestMarksAreOrderedByExecutor(t *testing.T) {
	marks := []string{"", "a/1", "a/2", "a-b/1", "b/0"}
	for i, a := range marks {
		for j, b := range marks {
			if got := compareMarks(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}
