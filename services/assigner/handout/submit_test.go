package handout

import (
	"reflect"
	"testing"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// What comes of several orders at once is what comes of each, in one effect.
func TestSeveralAnswersAreOneEffect(t *testing.T) {
	outcomes := []any{
		Accepted{State: model.WorkerRunning, Incarnation: 1, Sequence: 3},
		Accepted{State: model.WorkerRunning, Incarnation: 1, Sequence: 4},
		Refused{Reason: fault.ReasonNotAllowed},
		Unknown{"reset"},
		NotSent{},
	}
	var all SubmitsDone
	for i, outcome := range outcomes {
		all = append(all, SubmitDone{"e0", "u1", seat(int32(i)), 1, outcome})
	}
	workers := func(give func(w *world)) []model.TaskWorker {
		w := scene(t, 1)
		w.handedOut(t, "u1", 0, 0, 0, 0, 0)
		give(w)
		if len(w.failed) > 0 {
			t.Error(w.failed)
		}
		_, workers, _ := w.core.Task("u1")
		return workers
	}
	together := workers(func(w *world) {
		w.step(all)
		if len(w.effects) != 1 || len(w.effects[0].Events) != 1 || w.effects[0].Events[0].Count != 2 {
			t.Errorf("the effects are %+v", w.effects)
		}
		// Taken back, it is decided again.
		w.abandon()
		w.step(nil)
		w.settled(t)
	})
	singly := workers(func(w *world) {
		for _, one := range all {
			w.step(one)
			w.settled(t)
		}
	})
	if !reflect.DeepEqual(together, singly) {
		t.Errorf("together %+v\nsingly %+v", together, singly)
	}
}
