package queue

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// The registry keeps at most MaxEnded ended reservations, however many end within
// KeepEnded. It keeps the newest and forgets them after KeepEnded, as it does without the
// bound.
func TestEndedVersionsAreBoundedByCount(t *testing.T) {
	const most, all = 5, 60
	w := newWorld(Config{MaxEnded: most, KeepEnded: time.Hour})
	w.step(model.Elected{Term: 10, Revision: w.revision})
	for i := range all {
		key := model.Key{Job: fmt.Sprintf("j%02d", i), Stage: "s", Name: "main"}
		w.input(ask(key.Job, 1))
		w.input(request.Cancel{Key: key})
		w.now = w.now.Add(time.Second)
		w.step(nil)
		if kept := w.kept(); kept > most {
			t.Fatalf("%d ended versions are kept after %d have ended", kept, i+1)
		}
	}
	if kept := w.kept(); kept != most {
		t.Fatalf("%d ended versions are kept, want %d", kept, most)
	}
	for i := range all {
		_, found := w.core.Get(model.Key{Job: fmt.Sprintf("j%02d", i), Stage: "s", Name: "main"})
		if newest := i >= all-most; found != newest {
			t.Errorf("j%02d is kept: %v, want %v", i, found, newest)
		}
	}
	if next := w.core.NextDeadline(); !next.After(w.now) {
		t.Errorf("a deadline is due at once, at %v", next)
	}
	w.now = w.now.Add(2 * time.Hour)
	for range all {
		w.step(nil)
	}
	if kept := w.kept(); kept != 0 {
		t.Errorf("%d ended versions are kept after their time", kept)
	}
}

// kept returns the number of ended versions in the store.
func (w *world) kept() (n int) {
	for _, s := range w.records {
		if r, ok := s.record.(*model.Reservation); ok && r.State.Terminal() {
			n++
		}
	}
	return n
}
