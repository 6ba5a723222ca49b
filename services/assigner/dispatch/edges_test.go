package dispatch

import (
	"testing"

	"berth.dev/pkg/model"
)

// Edges has exactly the transitions of the model, and each transition has an owner.
func TestEveryTransitionHasOneOwner(t *testing.T) {
	rows := map[[2]model.WorkerState]int{}
	deadlines := map[model.WorkerState]int{}
	for _, e := range Edges {
		rows[[2]model.WorkerState{e.From, e.To}]++
		if e.Owner == "" {
			t.Errorf("%s to %s has no owner", e.From, e.To)
		}
		if (e.Deadline > 0) != (e.Miss != "" && e.Action != "") {
			t.Errorf("%s to %s: a row needs a deadline, a finding and an action, or none of them", e.From, e.To)
		}
		if e.Deadline > 0 {
			deadlines[e.From]++
		}
	}
	for from := model.WorkerAssigned; from <= model.WorkerEvicted; from++ {
		for to := model.WorkerAssigned; to <= model.WorkerEvicted; to++ {
			want := 0
			if from.MayBecome(to) {
				want = 1
			}
			if got := rows[[2]model.WorkerState{from, to}]; got != want {
				t.Errorf("%s to %s: %d rows, want %d", from, to, got, want)
			}
		}
		// A worker may be RUNNING forever. Every other state that is not terminal has a deadline.
		want := 1
		if from == model.WorkerRunning || from.Terminal() {
			want = 0
		}
		if deadlines[from] != want {
			t.Errorf("%s has %d deadlines, want %d", from, deadlines[from], want)
		}
	}
}
