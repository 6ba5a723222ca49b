package dispatch

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// without elects a core for which the records that missed selects are quarantined. It
// returns the actions that were carried out.
func (w *world) without(t *testing.T, missed func(model.Ref) bool) []model.Action {
	t.Helper()
	kept := w.records
	w.records = map[model.Ref]stored{}
	var held []model.Ref
	for ref, s := range kept {
		if missed(ref) {
			held = append(held, ref)
		} else {
			w.records[ref] = s
		}
	}
	w.effects, w.held, w.unsent = nil, nil, nil
	w.core = w.rebuilt()
	w.records, w.own = kept, map[model.Ref]model.Record{}
	for _, ref := range held {
		w.core.Step(w.now, model.Quarantined{Ref: ref})
	}
	return append(w.elect(), w.settled(t)...)
}

// If any record of a UID is quarantined, the core does not start, stop or lose its workers.
// The workers do not count as orphans either, and their lifetimes do not end.
func TestWorkersOfAQuarantinedRecordAreUnchanged(t *testing.T) {
	for name, kind := range map[string]model.Kind{
		"reservation": model.KindReservation, "lease": model.KindLeaseChunk,
		"header": model.KindTaskHeader, "chunk": model.KindTaskChunk,
	} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t, 2)
			w.reservation("u1", model.Queued, 3, func(r *model.Reservation) {
				r.Spec.Lifetime = model.Lifetime{For: time.Minute, From: model.FromLive}
				r.Spec.Restart, r.Spec.OnWorkerLoss = model.RestartAlways, model.OnLossReplace
			})
			w.dispatched(t, "u1", 0, 0)
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
				Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
					Sequence: 1}})
			w.dispatched(t, "u2", 1)
			w.settled(t)
			acts := w.without(t, func(ref model.Ref) bool { return ref.Kind == kind && ref.ID == "u1" })
			revision := w.revision
			running := WorkerStatus{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
				Status: Status{State: model.WorkerRunning}}
			acts = append(acts, w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 2,
				Complete: true, Workers: []WorkerStatus{running}}})...)
			acts = append(acts, w.settled(t)...)
			// The next report lists no worker. Then the executor is lost.
			w.step(model.Input{Token: 3, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 9, Complete: true}})
			w.executor(0, 1, true)
			w.progress()
			w.now = w.now.Add(time.Hour)
			acts = append(acts, w.step(nil)...)
			acts = append(acts, w.settled(t)...)
			if w.core.lifetimes.Len() > 0 {
				t.Error("the core waits for the end of a lifetime")
			}
			for _, stop := range of[Stop](acts) {
				t.Errorf("requested to stop: %+v", stop)
			}
			for _, submit := range of[Submit](acts) {
				if submit.UID == "u1" {
					t.Errorf("requested to start: %+v", submit)
				}
			}
			for ref, s := range w.records {
				if ref.ID == "u1" && s.mod > revision {
					t.Errorf("%+v was written", ref)
				}
			}
		})
	}
}

// The assigner refuses to dispatch a quarantined reservation, and accepts the other
// reservations.
func TestADispatchOfAQuarantinedRecordIsRefused(t *testing.T) {
	w := prepare(t, 1)
	for _, uid := range []string{"u1", "u2"} {
		w.reservation(uid, model.Queued, 3)
		w.lease(uid, 0)
	}
	w.progress()
	w.without(t, func(ref model.Ref) bool { return ref.Kind == model.KindReservation && ref.ID == "u1" })
	var outcomes []model.DispatchOutcome
	acts := append(w.dispatch(1, "u1"), w.dispatch(2, "u2")...)
	acts = append(acts, w.settled(t)...)
	for _, reply := range of[model.Reply](acts) {
		outcomes = append(outcomes, reply.Value.([]model.DispatchOutcome)...)
	}
	if len(outcomes) != 2 || outcomes[0].Accepted || outcomes[0].Reason != fault.ReasonPoison || !outcomes[1].Accepted {
		t.Errorf("outcomes %+v", outcomes)
	}
}

// While the record of any executor is quarantined, the core does not treat an executor
// without a record as lost.
func TestAQuarantinedExecutorLosesNoWorker(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	w.settled(t)
	w.without(t, func(ref model.Ref) bool { return ref.Kind == model.KindExecutor })
	if s := w.state("u1", workerID(0)); s != model.WorkerRunning {
		t.Errorf("the worker is %s", s)
	}
	for ref := range w.records {
		if ref.Kind == model.KindExecutor {
			delete(w.records, ref)
		}
	}
	w.succeed()
	w.settled(t)
	if s := w.state("u1", workerID(0)); s != model.WorkerLost {
		t.Errorf("without its executor the worker is %s, too", s)
	}
}

// If a decision about a task panics, Subject returns that task.
func TestSubjectIsTheTaskOfADecision(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	defer func() {
		if recover() == nil {
			t.Fatal("the core did not panic")
		}
		if want := (model.Ref{Kind: model.KindTaskHeader, ID: "u1"}); w.core.Subject() != want {
			t.Errorf("the subject is %+v, want %+v", w.core.Subject(), want)
		}
	}()
	w.core.drafts = nil // every write of a worker panics
	w.reservation("u1", model.Cancelling, 3)
	w.progress()
}
