package model_test

import (
	"testing"

	"berth.dev/pkg/model"
)

// Executor state 10: an unknown worker is stopped, and a missing worker becomes LOST. A
// worker of an older epoch is stopped. A worker that still runs at a higher incarnation is
// adopted.
func TestExecutorState10Reconcile(t *testing.T) {
	const here, elsewhere = 1, 2
	running := func(change func(*model.Reported)) model.Reported {
		r := model.Reported{Ordinal: here, Incarnation: 5, Sequence: 9, Complete: true, Listed: true, Epoch: 100,
			State: model.WorkerRunning}
		if change != nil {
			change(&r)
		}
		return r
	}
	silent := func(change func(*model.Reported)) model.Reported {
		r := running(change)
		r.Listed, r.Epoch, r.State = false, 0, model.WorkerUnset
		return r
	}
	recorded := func(change func(*model.Recorded)) *model.Recorded {
		r := &model.Recorded{Epoch: 100, Worker: model.TaskWorker{Ordinal: here, State: model.WorkerRunning, Incarnation: 5,
			Sequence: 8}}
		if change != nil {
			change(r)
		}
		return r
	}
	state := func(s model.WorkerState) *model.Recorded {
		return recorded(func(r *model.Recorded) { r.Worker.State = s })
	}
	for _, row := range []struct {
		name  string
		said  model.Reported
		known *model.Recorded
		want  model.Verdict
		stops bool
	}{
		{"record and report agree", running(nil), recorded(nil), model.Agreed, false},
		{"acknowledged only by the report", running(nil), recorded(func(r *model.Recorded) {
			r.Worker.State, r.Worker.Incarnation, r.Worker.Sequence = model.WorkerAssigned, 0, 0
		}), model.Adopted, false},
		{"still running, to be stopped", running(nil), state(model.WorkerEvict), model.Agreed, false},
		{"unknown", running(nil), nil, model.Zombie, true},
		{"was LOST, and is back", running(nil), state(model.WorkerLost), model.Zombie, true},
		{"of a higher epoch than recorded", running(func(r *model.Reported) { r.Epoch = 101 }), recorded(nil), model.Zombie,
			true},
		{"older epoch", running(func(r *model.Reported) { r.Epoch = 99 }), recorded(nil), model.OlderEpoch, true},
		{"older epoch, the newer one ended", running(func(r *model.Reported) { r.Epoch = 99 }), state(model.WorkerCompleted),
			model.OlderEpoch, true},
		{"on another executor", running(func(r *model.Reported) { r.Ordinal = elsewhere }), recorded(nil), model.Moved, true},
		{"adopted", running(func(r *model.Reported) { r.Incarnation = 6 }), recorded(nil), model.Adopted, false},
		{"another copy", running(func(r *model.Reported) { r.Incarnation = 4 }), recorded(nil), model.Duplicate, false},
		{"another copy has none", silent(func(r *model.Reported) { r.Incarnation = 4 }), recorded(nil), model.Duplicate,
			false},
		{"ended", running(func(r *model.Reported) { r.State = model.WorkerFailed }), recorded(nil), model.Ended, false},
		{"ended, reported again", running(func(r *model.Reported) { r.State = model.WorkerFailed }), nil, model.Ended,
			false},
		{"missing", silent(nil), recorded(nil), model.Missing, false},
		{"missing while starting", silent(nil), state(model.WorkerStarting), model.Missing, false},
		{"missing after a restart", silent(func(r *model.Reported) { r.Incarnation, r.Sequence = 6, 1 }), recorded(nil),
			model.Missing, false},
		{"not in a part of a report", silent(func(r *model.Reported) { r.Complete = false }), recorded(nil), model.Await,
			false},
		{"acknowledged after the report", silent(func(r *model.Reported) { r.Sequence = 8 }), recorded(nil), model.Await,
			false},
		{"the order is on its way", silent(nil), state(model.WorkerAssigned), model.Await, false},
		{"the stop is on its way", silent(nil), state(model.WorkerEvicting), model.Await, false},
		{"not its own", silent(func(r *model.Reported) { r.Ordinal = elsewhere }), recorded(nil), model.Await, false},
		{"never there", silent(nil), nil, model.Await, false},
	} {
		got := model.Reconcile(5, row.said, row.known)
		if row.said.Incarnation > 5 {
			got = model.Reconcile(row.said.Incarnation, row.said, row.known)
		}
		if got != row.want || got.Stops() != row.stops {
			t.Errorf("%s: %v, stops %v; want %v, %v", row.name, got, got.Stops(), row.want, row.stops)
		}
	}
}

// If a host returns under a new ID with its old disk, its workers are stopped there. They
// do not count as the workers of the old ID.
func TestPitfallHostBackUnderAnotherID(t *testing.T) {
	known := &model.Recorded{Epoch: 100, Worker: model.TaskWorker{Ordinal: 1, State: model.WorkerRunning, Incarnation: 5,
		Sequence: 8}}
	said := model.Reported{Ordinal: 2, Incarnation: 7, Sequence: 1, Complete: true, Listed: true, Epoch: 100,
		State: model.WorkerRunning}
	if got := model.Reconcile(7, said, known); got != model.Moved {
		t.Errorf("the worker on the new id is %v", got)
	}
	// The report of the new ID proves nothing about the old ID.
	said.Listed = false
	if got := model.Reconcile(7, said, known); got != model.Await {
		t.Errorf("what the new id does not list is %v", got)
	}
}
