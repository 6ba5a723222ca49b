package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

var denied = Refused{Reason: fault.ReasonPermissionDenied, Message: "not the nonce of the registration"}

// refuse lets e0 refuse every submit for ten seconds, starting with those in acts. It
// returns the stop requests that the core sends in that time.
func (w *world) refuse(t *testing.T, outcome any, acts ...model.Action) (stops []Stop) {
	t.Helper()
	for end := w.now.Add(10 * time.Second); !w.now.After(end); w.now = w.now.Add(50 * time.Millisecond) {
		acts = append(append(acts, w.step(nil)...), w.settled(t)...)
		stops = append(stops, of[Stop](acts)...)
		for _, s := range of[Submit](acts) {
			if s.Executor == "e0" {
				w.step(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Outcome: outcome})
			}
		}
		acts = nil
	}
	w.settled(t)
	return stops
}

func (w *world) refusal(id string) *model.Refusal {
	m, _ := w.records[model.RefusalRef(id)].record.(*model.Refusal)
	return m
}

func (w *world) worker(t *testing.T, uid string, index int32) model.TaskWorker {
	t.Helper()
	_, workers, _ := w.core.Task(uid)
	i := slices.IndexFunc(workers, func(worker model.TaskWorker) bool { return worker.ID == workerID(index) })
	if i < 0 {
		t.Fatalf("no worker %d of %s", index, uid)
	}
	return workers[i]
}

// If an executor refuses the leader, the core stores a record of the refusal and reports a
// finding. Workers on that executor are given up without an attempt. When the executor
// registers again, the record is deleted.
func TestAnExecutorThatRefusesTheLeaderGetsNoWorkers(t *testing.T) {
	for name, outcome := range map[string]Refused{
		"permission denied": denied, "a higher term": {Reason: fault.ReasonLowerTerm, Message: "term 9 was seen"},
	} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t, 2)
			first := w.dispatched(t, "u1", 0, 1)
			for _, s := range of[Submit](first) {
				result := any(outcome)
				if s.Executor != "e0" {
					result = Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1, Sequence: 1}
				}
				w.step(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Outcome: result})
			}
			w.settled(t)
			if w.refusal("e0") != nil || w.state("u1", workerID(0)) != model.WorkerAssigned {
				t.Fatalf("a single refusal is recorded: %+v", w.refusal("e0"))
			}
			w.refuse(t, outcome)
			m := w.refusal("e0")
			if m == nil || m.Incarnation != 1 || m.Reason != outcome.Reason || w.refusal("e1") != nil {
				t.Fatalf("recorded is %+v", m)
			}
			got := w.worker(t, "u1", 0)
			if got.State != model.WorkerFailed || !got.Requeue || got.Attempts != 0 ||
				got.Reason != fault.ReasonExecutorRefuses {
				t.Errorf("its worker is %+v", got)
			}
			if other := w.state("u1", workerID(1)); other != model.WorkerRunning {
				t.Errorf("the other executor's worker is %s", other)
			}
			findings := w.core.Findings(w.now)
			if len(findings) != 1 || findings[0].Kind != FindingRefusesLeader || findings[0].Object != "e0" {
				t.Errorf("findings %+v", findings)
			}
			// The core gives up workers that are placed on the executor later, without a submit.
			if acts := w.dispatched(t, "u2", 0); len(of[Submit](acts)) > 0 {
				t.Error("the executor gets a submit")
			}
			if got := w.worker(t, "u2", 0); got.State != model.WorkerFailed || !got.Requeue || got.Attempts != 0 {
				t.Errorf("its next worker is %+v", got)
			}
			// The successor reads the record of the refusal.
			w.succeed()
			w.settled(t)
			if w.refusal("e0") == nil || len(w.core.Findings(w.now)) != 1 {
				t.Error("a successor has no record of the refusal")
			}
			w.executor(0, 2, false)
			w.progress()
			w.settled(t)
			if w.refusal("e0") != nil || len(w.core.Findings(w.now)) != 0 {
				t.Error("the refusal is still recorded after a new registration")
			}
			if acts := w.dispatched(t, "u3", 0); len(of[Submit](acts)) != 1 {
				t.Error("the executor gets no submit")
			}
		})
	}
}

// A short refusal is not recorded. The agent had already registered again, but the view did
// not show that yet.
func TestAShortRefusalIsNotRecorded(t *testing.T) {
	w := prepare(t, 1)
	acts := w.dispatched(t, "u1", 0)
	for i, at := range []time.Duration{0, 600 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second} {
		w.now = w.now.Add(at)
		acts = append(acts, w.step(nil)...)
		for _, s := range of[Submit](acts) {
			outcome := any(denied)
			if i == 2 {
				outcome = Refused{Reason: fault.ReasonStartFailed}
			}
			w.step(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Outcome: outcome})
		}
		acts = w.settled(t)
	}
	if w.refusal("e0") != nil {
		t.Errorf("recorded: %+v", w.refusal("e0"))
	}
}

// If an earlier attempt may have started a worker, the worker is requeued only after its
// end is confirmed.
func TestARefusedWorkerThatMayRunIsStoppedFirst(t *testing.T) {
	w := prepare(t, 1)
	for _, s := range of[Submit](w.dispatched(t, "u1", 0)) {
		w.step(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt,
			Outcome: Unknown{Message: "no answer"}})
	}
	w.settled(t)
	stops := w.refuse(t, denied)
	if got := w.worker(t, "u1", 0); got.State != model.WorkerEvict || got.Requeue || got.Attempts != 1 {
		t.Fatalf("its worker is %+v", got)
	}
	if len(stops) == 0 {
		t.Fatal("no stop request")
	}
	w.step(StopDone{Executor: stops[0].Executor, Worker: stops[0].Worker, UID: stops[0].UID, Epoch: stops[0].Epoch,
		Result: denied})
	w.settled(t)
	if got := w.worker(t, "u1", 0); got.State != model.WorkerEvict {
		t.Fatalf("a refused stop confirmed the end: %+v", got)
	}
	w.executor(0, 2, false)
	w.progress()
	w.step(StopDone{Executor: stops[0].Executor, Worker: stops[0].Worker, UID: stops[0].UID, Epoch: stops[0].Epoch,
		Result: Ended{State: model.WorkerEvicted}})
	w.settled(t)
	if got := w.worker(t, "u1", 0); got.State != model.WorkerFailed || !got.Requeue ||
		got.Reason != fault.ReasonExecutorRefuses {
		t.Errorf("its worker is %+v", got)
	}
}

// If an executor's record is deleted, the core deletes the record of its refusal too.
func TestTheRefusalOfAForgottenExecutorIsDeleted(t *testing.T) {
	w := prepare(t, 1)
	w.refuse(t, denied, w.dispatched(t, "u1", 0)...)
	if w.refusal("e0") == nil {
		t.Fatal("nothing is recorded")
	}
	w.write(executorRef("e0"), nil)
	w.progress()
	w.settled(t)
	if w.refusal("e0") != nil {
		t.Error("the refusal is still recorded")
	}
}

// Every request has the executor's nonce, and printing a request does not show the nonce.
func TestRequestsHaveTheNonceAndDoNotPrintIt(t *testing.T) {
	w := prepare(t, 1)
	e := *w.records[executorRef("e0")].record.(*model.Executor)
	e.Nonce = "secret"
	w.write(e.Ref(), &e)
	w.progress()
	submits := of[Submit](w.dispatched(t, "u1", 0))
	if len(submits) != 1 || string(submits[0].Nonce) != "secret" {
		t.Fatalf("%d submits", len(submits))
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, submits[0]); strings.Contains(text, "secret") {
			t.Errorf("%s prints the nonce: %s", format, text)
		}
	}
}

// If a signal ended a worker, the reason is KILLED. If the worker exited with the
// corresponding exit code, the reason is EXITED.
func TestAWorkerEndedByASignalIsKilled(t *testing.T) {
	code := int32(137)
	for reason, signal := range map[fault.Reason]int32{fault.ReasonKilled: 9, fault.ReasonExited: 0} {
		w := prepare(t, 1)
		for _, s := range of[Submit](w.dispatched(t, "u1", 0)) {
			w.step(SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt,
				Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1, Sequence: 1}})
		}
		w.settled(t)
		w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 2, Workers: []WorkerStatus{
			{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
				Status: Status{State: model.WorkerFailed, ExitCode: &code, Signal: signal, Error: "killed by signal 9 (SIGKILL)"}},
		}}})
		w.settled(t)
		if got := w.worker(t, "u1", 0); got.Reason != reason || got.ExitCode == nil || *got.ExitCode != code {
			t.Errorf("signal %d: %+v", signal, got)
		}
	}
}

// A refusal by the former incarnation does not count for the current incarnation. This also
// holds if the refusal is handled again while a request to the current incarnation is in
// flight.
func TestARefusalIsAboutOneIncarnation(t *testing.T) {
	for name, test := range map[string]struct {
		incarnation int64
		recorded    bool
	}{"of the former incarnation": {1, false}, "of the current incarnation": {2, true}} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t, 2)
			acts := w.dispatched(t, "u1", 0)
			w.executor(0, 2, false)
			outcome := denied
			outcome.Incarnation = test.incarnation
			w.refuse(t, outcome, acts...)
			if recorded := w.refusal("e0") != nil; recorded != test.recorded {
				t.Errorf("recorded is %+v", w.refusal("e0"))
			}
		})
	}
}
