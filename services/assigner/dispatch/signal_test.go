package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// A signal goes to the RUNNING workers of the stage that the request names, with the current term,
// and the incarnation and the nonce of their executors.
func TestSignalTargets(t *testing.T) {
	w := prepare(t, 6)
	w.dispatched(t, "u1", 0, 1, 2, 3)
	w.dispatched(t, "u2", 4)
	// The second reservation is of the same stage, and has the next number of worker 0.
	later := w.core.tasks["u2"]
	header := *later.header
	header.Key.Job, header.Key.Stage, header.Epoch = key("u1").Job, key("u1").Stage, 8
	later.header = &header
	running := func(uid string, states ...model.WorkerState) {
		chunk := *w.core.tasks[uid].chunks[0]
		chunk.Workers = slices.Clone(chunk.Workers)
		for i, state := range states {
			chunk.Workers[i].State = state
		}
		w.core.tasks[uid].chunks[0] = &chunk
	}
	running("u1", model.WorkerRunning, model.WorkerRunning, model.WorkerStarting, model.WorkerRunning)
	running("u2", model.WorkerRunning)
	w.core.tasks["u2"].chunks[0].Workers[0].ID.Number = 2
	e := *w.records[executorRef("e1")].record.(*model.Executor)
	e.Nonce, e.Incarnation = "n", 4
	w.write(e.Ref(), &e)
	w.executor(3, 1, true) // lost

	id := func(index, number int32) model.WorkerID { return model.WorkerID{Index: index, Number: number} }
	for _, c := range []struct {
		name  string
		stage string
		named []model.WorkerID
		want  []string
	}{
		{"the stage", key("u1").Stage, nil,
			[]string{"0.1 e0 7 1", "0.2 e4 8 1", "1.1 e1 7 4 n", "3.1 e3 EXECUTOR_UNREACHABLE"}},
		{"the newest", key("u1").Stage, []model.WorkerID{id(0, 0)}, []string{"0.2 e4 8 1"}},
		{"by number", key("u1").Stage, []model.WorkerID{id(0, 1)}, []string{"0.1 e0 7 1"}},
		{"twice", key("u1").Stage, []model.WorkerID{id(1, 0), id(1, 1), id(1, 0)}, []string{"1.1 e1 7 4 n"}},
		{"not running", key("u1").Stage, []model.WorkerID{id(2, 0), id(2, 1), id(9, 0), id(1, 7)},
			[]string{"1.7  NOT_FOUND", "2.0  NOT_FOUND", "2.1  NOT_FOUND", "9.0  NOT_FOUND"}},
		{"another stage", "reduce", nil, nil},
	} {
		var got []string
		for _, target := range w.core.Signal(key("u1").Job, c.stage, c.named) {
			text := fmt.Sprint(target.Worker.ID, " ", target.Executor, " ")
			switch {
			case target.Err != nil:
				text += string(fault.Of(target.Err).Reason)
			case target.Term != w.core.term || target.Address != target.Executor+":7200" || target.Worker.Job != key("u1").Job:
				t.Errorf("%s: got %+v", c.name, target)
			default:
				text += fmt.Sprint(target.Epoch, " ", target.Incarnation)
				if target.Nonce != "" {
					text += " " + string(target.Nonce)
				}
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
