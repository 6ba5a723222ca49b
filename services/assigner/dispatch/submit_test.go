package dispatch

import (
	"reflect"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Several outcomes in one step lead to the same records as the outcomes one after the
// other, but with one effect.
func TestSeveralAnswersAreOneEffect(t *testing.T) {
	outcomes := []any{
		Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1, Sequence: 3},
		Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1, Sequence: 4},
		Refused{Reason: fault.ReasonNotAllowed},
		Unknown{"reset"},
		NotSent{},
	}
	var all SubmitsDone
	for i, outcome := range outcomes {
		all = append(all, SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(int32(i)), Attempt: 1, Outcome: outcome})
	}
	workers := func(give func(w *world)) []model.TaskWorker {
		w := prepare(t, 1)
		w.dispatched(t, "u1", 0, 0, 0, 0, 0)
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
		// After the effect is abandoned, the core repeats the decision.
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

// The reports of several executors about one task lead to one effect. Each executor gets
// its own answer.
func TestSeveralReportsAreOneEffect(t *testing.T) {
	w := prepare(t, 2)
	w.dispatched(t, "u1", 0, 1)
	report := func(executor string, index int32, incarnation int64) Report {
		return Report{Executor: executor, Incarnation: incarnation, Sequence: 5, Workers: []WorkerStatus{{
			Worker: model.Worker{Job: "job-u1", Stage: "map", ID: workerID(index)}, UID: "u1", Epoch: 7,
			Status: Status{State: model.WorkerCompleted},
		}}}
	}
	reports := Reports{report("e0", 0, 1), report("e1", 1, 0), report("e1", 1, 1), report("stranger", 0, 1)}
	w.step(model.Input{Token: 5, Request: reports})
	if len(w.effects) != 1 || len(w.effects[0].Events) != 1 || w.effects[0].Events[0].Count != 2 {
		t.Fatalf("the effects are %+v", w.effects)
	}
	var results []ReportResult
	for _, action := range w.settled(t) {
		if reply, ok := action.(model.Reply); ok && reply.Token == 5 {
			results = reply.Value.([]ReportResult)
		}
	}
	if len(results) != 4 || results[0].Err != nil || results[0].Executor != "e0" || results[2].Err != nil ||
		results[2].Sequence != 5 ||
		!fault.Is(results[1].Err, fault.ReasonOtherIncarnation) || !fault.Is(results[3].Err, fault.ReasonUnavailable) {
		t.Errorf("the answers are %+v", results)
	}
	for i := range int32(2) {
		if state := w.state("u1", workerID(i)); state != model.WorkerCompleted {
			t.Errorf("worker %d is %v", i, state)
		}
	}
}
