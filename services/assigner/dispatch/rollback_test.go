package dispatch

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func TestAnAbandonedDispatchIsRepeatedWithoutDelay(t *testing.T) {
	w := prepare(t, 1)
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", 0)
	w.progress()
	before := dump(w.core)
	w.dispatch(1, "u1")
	w.abandon()
	if after := dump(w.core); after != before {
		t.Fatalf("before\n%s\nafter\n%s", before, after)
	}
	w.step(nil)
	carried := w.settled(t)
	if len(of[model.Reply](carried)) != 1 || len(of[Submit](carried)) != 1 {
		t.Errorf("carried out %+v", carried)
	}
}

func TestARequestOfAnAbandonedRoundIsSentWithTheNext(t *testing.T) {
	w := prepare(t, 2)
	w.dispatched(t, "u1", 0)
	w.present("e1", false)
	w.progress()
	w.dispatched(t, "u2", 1)
	// In one round, the core acknowledges a worker, which is an effect, and the executor of
	// the other worker is present again.
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: 1,
			Sequence: 1}})
	w.present("e1", true)
	w.progress()
	w.abandon()
	w.step(nil)
	if got := of[Submit](w.settled(t)); len(got) != 1 || got[0].UID != "u2" {
		t.Errorf("sent %+v", got)
	}
}

func TestAnAnswerIsHandledAgainAfterAnAbandonedEffect(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Refused{Reason: fault.ReasonNotAllowed}})
	w.abandon()
	if next := w.core.NextDeadline(); next.After(w.now) {
		t.Errorf("the answer waits until %v", next)
	}
	w.step(nil)
	w.settled(t)
	_, workers, _ := w.core.Task("u1")
	if workers[0].Attempts != 1 || w.sent[workerKey{0, "u1", workerID(0)}][1] != 1 {
		t.Errorf("%d attempts counted, sent %v", workers[0].Attempts, w.sent)
	}
}

func TestRequestsBehindADroppedOneAreSent(t *testing.T) {
	w := newWorld(Config{InFlight: 2, PerExecutor: 1})
	for n := range uint32(3) {
		w.executor(n, 1, false)
	}
	w.present("e0", true)
	w.present("e1", true)
	w.registry()
	w.progress()
	w.elect()
	w.dispatched(t, "u1", 0) // in flight
	w.dispatched(t, "u3", 2) // waits until executor e2 is present
	w.dispatched(t, "u4", 0) // waits until a call to e0 ends
	w.dispatched(t, "u5", 0)
	w.dispatched(t, "u2", 1) // in flight: the total limit is reached
	w.present("e2", true)
	w.progress()
	// After the answer for u1, u4 could be sent, but u3 precedes it. While u4 waits, executor
	// e0 reports worker u4 as running, so the core sends u5 in its place.
	accepted := Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: 1, Sequence: 1}
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1, Outcome: accepted})
	w.settled(t)
	w.step(model.Input{Token: 9, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 2, Workers: []WorkerStatus{{
		Worker: model.Worker{Job: "job-u4", Stage: "map", ID: workerID(0)}, UID: "u4", Epoch: 7,
		Status: Status{State: model.WorkerRunning},
	}}}})
	w.settled(t)
	w.step(SubmitDone{Executor: "e1", UID: "u2", WorkerID: workerID(0), Attempt: 1, Outcome: accepted})
	w.settled(t)
	if w.sent[workerKey{0, "u5", workerID(0)}] == nil {
		t.Error("u5 was never sent")
	}
	if len(w.failed) > 0 {
		t.Error(w.failed)
	}
}

func TestARestartedExecutorAdoptsTheWorkersThatItLists(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 8}})
	w.settled(t)
	w.executor(0, 2, false)
	w.progress()
	w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 2, Sequence: 1, Complete: true,
		Workers: []WorkerStatus{{
			Worker: model.Worker{Job: "job-u1", Stage: "map", ID: workerID(0)}, UID: "u1", Epoch: 7,
			Status: Status{State: model.WorkerRunning},
		}}}})
	w.settled(t)
	_, workers, _ := w.core.Task("u1")
	if got := workers[0]; got.State != model.WorkerRunning || got.Incarnation != 2 || got.Sequence != 1 {
		t.Errorf("adopted as %+v", got)
	}
}

// The shell repeats the event of an outcome if the effects that followed from it were
// abandoned. The repeat does not end a later call for the same worker: while that call is in
// flight, a stop must reach the executor.
func TestRepeatedOutcomeEndsNoLaterCall(t *testing.T) {
	w := newWorld(Config{})
	w.executor(0, 1, false)
	w.present("e0", true)
	w.progress()
	w.elect()
	first := of[Submit](w.dispatched(t, "u1", 0))[0]
	denied := first.Done(Refused{Reason: fault.ReasonPermissionDenied})
	w.step(denied)
	w.now = w.core.NextDeadline()
	later := of[Submit](w.step(nil))
	if len(later) != 1 || later[0].Call == first.Call || later[0].Attempt != first.Attempt {
		t.Fatalf("%+v", later)
	}
	w.step(denied)
	w.reservation("u1", model.Cancelling, 3)
	w.progress()
	w.settled(t)
	if got := w.worker(t, "u1", 0); got.State != model.WorkerEvict {
		t.Errorf("%+v", got)
	}
}
