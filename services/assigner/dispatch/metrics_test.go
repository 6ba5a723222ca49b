package dispatch

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The metrics do not count an abandoned decision, and count a repeated decision once.
func TestMetricsCountDurableDecisions(t *testing.T) {
	w := prepare(t, 2)
	w.reservation("u1", model.Queued, 2)
	w.lease("u1", 0, 1)
	w.progress()
	w.dispatch(1, "u1")
	w.settled(t)
	w.now = w.now.Add(20 * time.Millisecond)
	give := func(event model.Event) {
		w.step(event)
		before := w.core.Metrics()
		w.abandon()
		if after := w.core.Metrics(); after.Assign != before.Assign || !maps.Equal(after.Retries, before.Retries) ||
			!maps.Equal(after.Failures, before.Failures) {
			t.Errorf("an abandoned decision was counted: %+v after %+v", after, before)
		}
		w.step(nil)
		w.settled(t)
	}
	give(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Refused{Reason: fault.ReasonNotAllowed}})
	if f := w.core.Metrics(); f.Attempts != 1 || f.Retries[fault.ReasonNotAllowed] != 1 || f.Assign.Count() != 0 {
		t.Errorf("after one failure: %+v", f)
	}
	give(SubmitDone{Executor: "e1", UID: "u1", WorkerID: workerID(1), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	if f := w.core.Metrics(); f.Attempts != 2 || f.Assign.Count() != 1 || f.Run.Count() != 1 ||
		f.AssignBatch.Count() != 0 {
		t.Errorf("after one worker runs: %+v", f)
	}
	w.now = w.now.Add(time.Second)
	w.step(nil)
	w.settled(t)
	give(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 2,
		Outcome: Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: 1,
			Sequence: 1}})
	f := w.core.Metrics()
	if f.Attempts != 3 || f.Assign.Count() != 2 || f.Run.Count() != 1 || f.AssignBatch.Count() != 1 {
		t.Errorf("after both are acknowledged: %+v", f)
	}
	if granted := w.records[leaseRef("u1")].record.(*model.LeaseChunk).GrantedAt; f.AssignBatch.Sum != w.now.Sub(granted) {
		t.Errorf("the batch took %v since its grant at %v", f.AssignBatch.Sum, granted)
	}
	// One worker ends later than its grace period. The executor of the other worker is lost.
	w.reservation("u1", model.Cancelling, 2)
	w.progress()
	w.settled(t)
	w.now = w.now.Add(3 * time.Second)
	give(StopDone{Executor: "e0", Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
		Result: Ended{State: model.WorkerEvicted}})
	w.executor(1, 1, true)
	w.progress()
	w.settled(t)
	if f := w.core.Metrics(); f.Overdue != 2 || f.Failures[fault.ReasonExecutorLost] != 1 || f.Requeues != 0 {
		t.Errorf("in the end: %+v", f)
	}
}

// Only workers with readiness REPORTED have a load time, from STARTING to RUNNING. Only
// workers that are stopped at the end of their lifetime count as such.
func TestMetricsCountLoadsAndLifetimes(t *testing.T) {
	w := prepare(t, 1)
	for i, readiness := range []model.Readiness{model.ReadyReported, model.ReadyStarted, model.ReadinessUnset} {
		uid := fmt.Sprintf("u%d", i)
		w.reservation(uid, model.Queued, 2, func(r *model.Reservation) {
			r.Spec.Task.Readiness = readiness
			r.Spec.Lifetime = model.Lifetime{For: time.Minute, From: model.LifetimeFrom(i)} // u2 has FromLive
		})
		w.lease(uid, 0)
		w.progress()
		w.dispatch(uint64(i), uid)
		w.settled(t)
	}
	report := func(sequence int64, state model.WorkerState) {
		r := Report{Executor: "e0", Incarnation: 1, Sequence: sequence}
		for i := range 3 {
			uid := fmt.Sprintf("u%d", i)
			r.Workers = append(r.Workers, WorkerStatus{Worker: workerOf(uid, workerID(0)), UID: uid, Epoch: 7,
				Status: Status{State: state}})
		}
		w.step(model.Input{Token: uint64(sequence), Request: r})
		w.settled(t)
	}
	report(1, model.WorkerStarting)
	w.now = w.now.Add(30 * time.Second)
	report(2, model.WorkerRunning)
	if m := w.core.Metrics(); m.Load.Count() != 1 || m.Load.Sum != 30*time.Second || m.Run.Count() != 3 ||
		m.Lifetimes != 0 {
		t.Errorf("after all run: %+v", m)
	}
	for i, want := range []time.Time{{}, {}, w.now} {
		if got := w.worker(t, fmt.Sprintf("u%d", i), 0).RunningSince.Time(); !got.Equal(want) {
			t.Errorf("u%d is recorded as RUNNING since %v, want %v", i, got, want)
		}
	}
	w.now = w.now.Add(time.Minute)
	w.step(nil)
	w.settled(t)
	if m := w.core.Metrics(); m.Lifetimes != 1 || w.state("u2", workerID(0)) != model.WorkerEvict {
		t.Errorf("after the lifetime: %+v", m)
	}
}

// Agents choose the reasons of their refusals, so the metrics limit the number of distinct
// reasons.
func TestMetricsLimitTheNumberOfReasons(t *testing.T) {
	counts := map[fault.Reason]uint64{}
	for i := range 1000 {
		countReason(counts, fault.Reason(fmt.Sprint("R", i)))
	}
	if len(counts) != maxMetricReasons+1 || counts[reasonOther] != 1000-maxMetricReasons {
		t.Errorf("%d reasons, %d others", len(counts), counts[reasonOther])
	}
}
