package chaos

import (
	"context"
	"slices"
	"testing"
)

// If a stream omits or repeats an event, the reader reports a violation.
func TestStreamViolations(t *testing.T) {
	held := []string{"3-0", "3-1", "20-0"}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name      string
		delivered []string
		right     bool
	}{
		{"whole", held, true},
		{"the stream has an event that etcd does not have", append(slices.Clone(held), "21-0"), true},
		{"an event is missing", []string{"3-0", "20-0"}, false},
		{"the last event is missing", []string{"3-0", "3-1"}, false},
		{"an event is repeated", []string{"3-0", "3-0", "3-1", "20-0"}, false},
		{"out of order", []string{"3-1", "3-0", "20-0"}, false},
		{"an event was never written", []string{"3-0", "3-1", "4-0", "20-0"}, false},
	} {
		r := newReader("job")
		for _, cursor := range c.delivered {
			r.take(cursor, false)
		}
		if found := r.check(over, held); (len(found) == 0) != c.right {
			t.Errorf("%s: %q", c.name, found)
		}
	}

	// If a stream was started again after a compaction, it may repeat events.
	r := newReader("job")
	r.take("3-0", false)
	r.take("3-1", false)
	for _, cursor := range held {
		r.take(cursor, true)
	}
	if found := r.check(t.Context(), held); len(found) != 0 {
		t.Errorf("restarted stream: %q", found)
	}
}
