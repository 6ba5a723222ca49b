package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"berth.dev/pkg/model"
)

// transition returns the row of Edges for a record that an effect puts.
func transition(from model.State, r *model.Reservation, effect model.Effect) (int, bool) {
	at := slices.IndexFunc(Edges, func(e Edge) bool {
		return e.From == from && e.To == r.State && (e.Event == 0 || slices.ContainsFunc(effect.Events,
			func(emitted model.JobEvent) bool { return emitted.UID == r.UID && emitted.Kind == e.Event }))
	})
	return at, at >= 0
}

// checkEdges checks that an effect only makes transitions of Edges, with their events.
func (w *world) checkEdges(effect model.Effect) {
	for _, record := range effect.Puts {
		r, ok := record.(*model.Reservation)
		if !ok {
			continue
		}
		from := model.StateUnset
		if before, stored := w.records[r.Ref()].record.(*model.Reservation); stored {
			from = before.State
		}
		if from == r.State {
			continue
		}
		at, known := transition(from, r, effect)
		if !known {
			panic(fmt.Sprintf("%s goes from %q to %s with the events %v, which is not in Edges", r.Key, from, r.State,
				effect.Events))
		}
		if w.edges != nil {
			w.edges[at] = true
		}
	}
}

// The transcripts make every transition of Edges.
func TestEveryEdgeIsPlayed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	edges := map[int]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(Config{})
		w.edges = edges
		w.play(t, string(text))
	}
	for i, e := range Edges {
		if !edges[i] {
			t.Errorf("no transcript goes from %q to %s with event %d: %s", e.From, e.To, e.Event, e.When)
		}
	}
}
