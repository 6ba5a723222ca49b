package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// Each pitfall test reproduces a defect of an earlier system.

func ask(job string, count int32) model.Upsert {
	return model.Upsert{Key: model.Key{Job: job, Stage: "s", Name: "main"}, Count: count}
}

func started() *world {
	w := newWorld(Config{})
	w.successor(10)
	return w
}

func (w *world) position(job string) int {
	view, _ := w.core.Get(ask(job, 1).Key)
	return view.Position
}

// actionsOf returns the actions of type T.
func actionsOf[T any](actions []model.Action) []T {
	var picked []T
	for _, action := range actions {
		if a, ok := action.(T); ok {
			picked = append(picked, a)
		}
	}
	return picked
}

// commitAll commits all effects in w.held in one transaction.
func (w *world) commitAll() []model.Action {
	before := w.revision
	for _, effect := range w.held {
		w.revision = before
		w.apply(effect)
	}
	n := len(w.held)
	w.hold, w.held = false, nil
	return w.step(model.Committed{Effects: n, Revision: w.revision})
}

// In an earlier system the order key had no unique sequence number. Two reservations of the
// same moment compared equal, one of them was never queued, and removing either removed the
// other.
func TestPitfallOrderKeyWithoutASequence(t *testing.T) {
	w := started()
	w.hold = true
	w.input(ask("a", 1))
	w.input(ask("b", 1))
	w.commitAll()
	if w.position("a") != 1 || w.position("b") != 2 {
		t.Fatalf("a is at %d and b at %d", w.position("a"), w.position("b"))
	}
	w.input(request.Cancel{Key: ask("a", 1).Key})
	if w.position("b") != 1 {
		t.Errorf("after a was cancelled, b is at %d", w.position("b"))
	}
}

// In an earlier system, a cancel, a replacement or a late success of one reservation
// cleared the in-flight mark of another. The other reservation was sent again and leased
// twice.
func TestPitfallInFlightMarkOfAnotherCleared(t *testing.T) {
	w := started()
	first := actionsOf[model.Cycle](w.input(ask("a", 1)))[0]
	w.now = w.now.Add(time.Millisecond)
	for _, actions := range [][]model.Action{
		w.input(ask("b", 1)),
		w.input(request.Cancel{Key: ask("b", 1).Key}),
		w.input(ask("c", 1)),
		w.input(ask("c", 2)),
		w.step(scheduler.CycleDone{Cycle: first.Number - 1, Outcomes: []model.Outcome{{UID: first.Candidates[0].UID,
			Result: model.Granted, Lease: 1 << 40}}}),
		w.step(DispatchDone{Outcomes: []model.DispatchOutcome{{UID: first.Candidates[0].UID, Accepted: true}}}),
		w.step(nil),
	} {
		if cycles := actionsOf[model.Cycle](actions); len(cycles) > 0 {
			t.Fatalf("a second cycle while the first is in flight: %+v", cycles)
		}
	}
	if view, _ := w.core.Get(ask("a", 1).Key); view.State != model.Leasing {
		t.Errorf("a is %s, not in flight", view.State)
	}
}

// In an earlier system, a retry got a new time and moved an unchanged reservation to the
// tail.
func TestPitfallRetryLosesThePlace(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	w.input(ask("b", 1))
	for range 5 {
		w.now = w.now.Add(time.Second)
		w.step(nil)
		w.step(scheduler.CycleDone{Cycle: w.cycle.Number, Outcomes: []model.Outcome{{UID: "a-1", Result: model.NoFit}}})
		w.input(ask("a", 1))
	}
	if w.position("a") != 1 || w.position("b") != 2 {
		t.Errorf("a is at %d and b at %d", w.position("a"), w.position("b"))
	}
}

// In an earlier system, an empty worker list blocked its group, and a null constraint threw
// an exception inside the loop. No caller got a reply.
func TestPitfallEmptyWorkerListBlocksItsGroup(t *testing.T) {
	w := started()
	for _, request := range []any{model.Upsert{}, ask("a", 0), ask("a", -1), request.Cancel{}, request.CancelJob{}, nil,
		7} {
		actions := w.input(request)
		if replies := actionsOf[model.Reply](actions); len(replies) != 1 || len(actions) != 1 {
			t.Errorf("%#v: %s", request, show(actions))
		}
	}
	if len(w.pending()) != 0 {
		t.Errorf("something is queued: %+v", w.pending())
	}
	if cycles := actionsOf[model.Cycle](w.input(ask("a", 1))); len(cycles) != 1 {
		t.Errorf("a good request after them is not tried")
	}
}

// In an earlier system, the registry forgot a reservation before its workers were assigned.
// No service handled the failures that came later.
func TestPitfallForgottenBeforeItWasAssigned(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	w.write(w.leaseOf("a-1"))
	w.step(scheduler.CycleDone{Cycle: 1, Outcomes: []model.Outcome{{UID: "a-1", Result: model.Granted,
		Lease: w.revision}}})
	w.show(w.leaseOf("a-1"))
	for range 3 {
		w.now = w.now.Add(time.Minute)
		w.step(nil)
		if view, ok := w.core.Get(ask("a", 1).Key); !ok || view.State != model.Assigning {
			t.Fatalf("a is %v", view.State)
		}
	}
	w.step(DispatchDone{Outcomes: []model.DispatchOutcome{{UID: "a-1", Reason: fault.ReasonEtcdLeaseExpired}}})
	if w.position("a") != 1 {
		t.Errorf("refused but not queued again")
	}
}

// In an earlier system, group keys were case-sensitive and matching was not, so two queues
// used the same executors.
func TestPitfallGroupKeysByCase(t *testing.T) {
	w := started()
	for i, sku := range []string{"GPU", "gpu", "Gpu"} {
		u := ask(fmt.Sprint("j", i), 1)
		u.Spec.Constraints = constraint.Constraints{SKU: sku, Attributes: map[string]string{"Zone": "A"}}
		w.input(u)
	}
	if groups := w.pending(); len(groups) != 1 || groups[0].Reservations != 3 {
		t.Errorf("three spellings make %+v", groups)
	}
}

// In an earlier system, reservations whose constraints differed but matched the same
// executors had no order.
func TestPitfallNoOrderAcrossGroups(t *testing.T) {
	w := started()
	w.hold = true
	var want []string
	for i, order := range []int64{4, 1, 5, 2, 3} {
		u := ask(fmt.Sprint("j", i), 1)
		u.Spec.Constraints.SKU, u.Spec.Priority.Order = fmt.Sprint("sku", i), &order
		w.input(u)
	}
	for _, i := range []int{1, 3, 4, 0, 2} {
		want = append(want, fmt.Sprint("j", i))
	}
	cycle := actionsOf[model.Cycle](w.commitAll())[0]
	var got []string
	for _, e := range cycle.Candidates {
		got = append(got, e.Key.Job)
	}
	if !slices.Equal(got, want) {
		t.Errorf("tried in the order %v, want %v", got, want)
	}
}

// In an earlier system, reservations were retried only every 5 s. Each failed attempt reset
// the timer, and the inventory did not signal changes.
func TestPitfallRetryOnlyByPolling(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	refused := func() {
		w.step(scheduler.CycleDone{Cycle: w.cycle.Number, Outcomes: []model.Outcome{{UID: "a-1", Result: model.NoFit}}})
	}
	refused()
	timer := w.core.NextDeadline()
	if wait := timer.Sub(w.now); wait <= 0 || wait > w.core.config.Scheduling.RetryEvery {
		t.Fatalf("the timer is in %v", wait)
	}

	w.now = w.now.Add(w.core.config.Scheduling.RetryEvery / 2)
	e := &model.Executor{ID: "new"}
	w.foreign(model.Changed{Ref: e.Ref(), Record: e})
	if wait := w.core.NextDeadline().Sub(w.now); wait != w.core.config.Scheduling.Debounce {
		t.Errorf("a new executor is tried after %v", wait)
	}
	w.now = w.now.Add(w.core.config.Scheduling.Debounce)
	if cycles := actionsOf[model.Cycle](w.step(nil)); len(cycles) != 1 {
		t.Fatalf("%d cycles after the inventory changed", len(cycles))
	}
	refused()
	if next := w.core.NextDeadline(); !next.Equal(timer) {
		t.Errorf("a failed attempt moved the timer from %v to %v", timer, next)
	}
}

// In an earlier system, a failed batch kept its executors marked for a while. Many groups
// that retried at the same time starved each other.
func TestPitfallRetryingGroupsStarveEachOther(t *testing.T) {
	const groups = 50
	w := started()
	w.hold = true
	for i := range groups {
		u := ask(fmt.Sprint("j", i), 3)
		u.Spec.Constraints.SKU = fmt.Sprint("sku", i)
		w.input(u)
	}
	cycle := actionsOf[model.Cycle](w.commitAll())[0]
	for turn := range 3 {
		if len(cycle.Candidates) != groups-turn {
			t.Fatalf("turn %d tries %d groups in one cycle, want all %d", turn, len(cycle.Candidates), groups-turn)
		}
		done := scheduler.CycleDone{Cycle: cycle.Number}
		for i, e := range cycle.Candidates {
			outcome := model.Outcome{UID: e.UID, Result: model.NoFit, Fitting: 2}
			if i == len(cycle.Candidates)-1 { // the last candidate is granted too
				lease := w.leaseOf(e.UID)
				w.write(lease)
				outcome = model.Outcome{UID: e.UID, Result: model.Granted, Lease: w.revision}
			}
			done.Outcomes = append(done.Outcomes, outcome)
		}
		w.step(done)
		for _, g := range w.pending() {
			if g.Reservations != 1 || g.Workers != 3 {
				t.Fatalf("a batch that did not fit changed its group: %+v", g)
			}
		}
		w.now = w.now.Add(w.core.config.Scheduling.RetryEvery)
		cycle = actionsOf[model.Cycle](w.step(nil))[0]
	}
}

// In an earlier system, the gauge of a group kept its value after the group became empty.
func TestPitfallGaugeOfAnEmptyGroup(t *testing.T) {
	w := started()
	w.input(ask("a", 3))
	if stats := w.core.Stats(); len(stats.Groups) != 1 || stats.Groups[0].Workers != 3 {
		t.Fatalf("one reservation makes %+v", stats)
	}
	w.input(request.Cancel{Key: ask("a", 1).Key})
	if stats := w.core.Stats(); len(stats.Groups) != 0 || stats.States[model.Queued] != 0 {
		t.Errorf("the group stays: %+v", stats)
	}
	if !w.core.scheduler.NextCycle().IsZero() || len(w.core.scheduler.Groups()) != 0 {
		t.Errorf("the empty group was not deleted")
	}
}

// A reservation that shrinks keeps its place, even if its first version is not durable yet
// and other reservations arrive in between.
func TestPlaceIsKeptAcrossOneCommit(t *testing.T) {
	w := started()
	w.hold = true
	w.input(ask("a", 2))
	w.input(ask("b", 1))
	both := w.held
	w.held = nil
	w.input(ask("a", 1))
	shrunk := w.held
	w.held = both
	w.commitAll()
	w.held = shrunk
	w.commitAll()
	if w.position("a") != 1 || w.position("b") != 2 {
		t.Errorf("a is at %d and b at %d", w.position("a"), w.position("b"))
	}
}

// A repeated cancel finishes a cancel that was interrupted between two effects, because
// only the last effect stores the mark of the call.
func TestRepeatFinishesAnInterruptedCancel(t *testing.T) {
	const names = 2*effectReservations + 10
	w := started()
	for i := range names {
		u := ask("a", 1)
		u.Key.Name = fmt.Sprint("n", i)
		w.input(u)
	}
	w.hold = true
	w.input(request.CancelJob{Job: "a", RequestID: "kill"})
	if len(w.held) != 3 {
		t.Fatalf("%d effects", len(w.held))
	}
	w.apply(w.held[0])
	w.step(model.Committed{Effects: 1, Revision: w.revision})
	w.step(model.Abandoned{})
	w.hold = false
	w.successor(20)
	reply := actionsOf[model.Reply](w.input(request.CancelJob{Job: "a", RequestID: "kill"}))[0]
	if got := reply.Value.(Cancelled).Count; got != names-effectReservations {
		t.Errorf("the repeat cancelled %d", got)
	}
	if stats := w.core.Stats(); stats.States[model.Cancelled] != names {
		t.Errorf("%d of %d are cancelled", stats.States[model.Cancelled], names)
	}
}

// An input that arrives again while its first reply is pending gets one reply.
func TestRepeatedInputIsAnsweredOnce(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	header := &model.TaskHeader{UID: "a-1", Complete: true}
	w.foreign(w.leaseOf("a-1"), model.Changed{Ref: header.Ref(), Record: header})
	cancel := model.Input{Token: 77, Request: request.Cancel{Key: ask("a", 1).Key, RequestID: "c"}}
	for range 3 {
		if replies := actionsOf[model.Reply](w.step(cancel)); len(replies) != 0 {
			t.Fatalf("answered before the assigner accepted the stop: %+v", replies)
		}
	}
	stopping := *header
	stopping.Stopping = true
	replies := actionsOf[model.Reply](w.foreign(model.Changed{Ref: header.Ref(), Record: &stopping}))
	if len(replies) != 1 || replies[0].Value.(Cancelled).Count != 1 {
		t.Errorf("answers: %+v", replies)
	}
	if len(w.core.waiting) != 0 {
		t.Errorf("something still waits: %v", w.core.waiting)
	}
}

// If many versions end at the same time, the core spreads them over several steps. All of
// them end.
func TestDerivedWorkIsBounded(t *testing.T) {
	const all = 3*maxDerived + 1
	w := started()
	for i := range all {
		u := ask(fmt.Sprint("j", i), 1)
		u.Spec.QueueTimeout = time.Minute
		w.input(u)
	}
	w.now = w.now.Add(time.Hour)
	steps := 0
	for ; !w.core.NextDeadline().After(w.now); steps++ {
		if n := len(actionsOf[model.Effect](w.core.Step(w.now, nil))); n > maxDerived {
			t.Fatalf("%d effects in one step", n)
		}
		w.core.Step(w.now, model.Committed{Effects: len(w.core.pending), Revision: w.revision + 1})
		w.revision++
	}
	if got := w.core.Stats().States[model.Expired]; got != all {
		t.Errorf("%d of %d are expired after %d steps", got, all, steps)
	}
}

// Each call carries the revision of the record, so the core sends no record that has no
// revision yet.
func TestNothingIsSentBeforeItIsDurable(t *testing.T) {
	w := started()
	w.input(ask("a", 1))
	lease := w.leaseOf("a-1")
	w.write(lease)
	w.hold = true
	reordered := ask("a", 1)
	reordered.Spec.Priority.Tier = 1
	w.input(reordered)
	if calls := actionsOf[model.Dispatch](w.show(model.Changed{Ref: lease.Ref, Record: lease.Record, Create: w.revision,
		Mod: w.revision})); len(calls) > 0 {
		t.Fatalf("dispatched: %+v", calls)
	}
	calls := actionsOf[model.Dispatch](w.commitAll())
	if len(calls) != 1 || calls[0].Tasks[0].Mod != w.revision {
		t.Errorf("dispatched at %d: %+v", w.revision, calls)
	}
}

// An upsert that changed nothing does not revive the reservation if a copy of it arrives
// after a cancel.
func TestLateCopyOfAnUnchangedUpsertRevivesNothing(t *testing.T) {
	w := started()
	w.input(ask("a", 2))
	again := ask("a", 2)
	again.RequestID = "again"
	upserted := func() Upserted {
		t.Helper()
		replies := actionsOf[model.Reply](append(w.input(again), w.commitAll()...))
		if len(replies) != 1 || replies[0].Err != nil {
			t.Fatalf("replies: %+v", replies)
		}
		return replies[0].Value.(Upserted)
	}
	if got := upserted(); got.Change != model.Unchanged {
		t.Fatalf("repeated: %v", got.Change)
	}
	w.input(request.Cancel{Key: again.Key})
	if late := upserted(); late.Change != model.Unchanged || late.Reservation.State != model.Cancelled {
		t.Errorf("a late copy: %v, %v", late.Change, late.Reservation.State)
	}
}

// If the core decides a part, a requeue or a round and the effect is not committed, the
// core repeats the decision from the records.
func TestUncommittedDecisionIsMadeAgain(t *testing.T) {
	for name, prepare := range map[string]func(w *world) []model.Action{
		"part": func(w *world) []model.Action {
			u := ask("j", 4)
			u.Spec.Batch = model.BatchBestEffort
			w.input(u)
			w.failing = true
			return w.step(scheduler.CycleDone{Cycle: 1, Outcomes: []model.Outcome{{UID: "a-1", Result: model.NoFit,
				Fitting: 3}}})
		},
		"requeue": func(w *world) []model.Action {
			w.input(ask("j", 4))
			w.bring("a-1", isActive)
			w.failing = true
			w.giveUp("a-1", 2)
			return nil
		},
		"round": func(w *world) []model.Action {
			u := ask("j", 4)
			u.Spec.Start = model.StartTogether
			w.input(u)
			w.bring("a-1", isActive)
			h := &model.TaskHeader{UID: "a-1", Complete: true, Withdrawn: true, Ended: true}
			w.foreign(model.Changed{Ref: h.Ref(), Record: h})
			w.failing = true
			return w.foreign(model.Changed{Ref: w.leaseOf("a-1").Ref})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := started()
			prepare(w)
			if w.failing || len(w.core.byKey[ask("j", 1).Key]) != 1 {
				t.Fatal("nothing was decided and abandoned")
			}
			if next := w.core.NextDeadline(); !next.Equal(w.now) {
				t.Errorf("next deadline %v, want now", next)
			}
			w.step(nil)
			if n := len(w.core.byKey[ask("j", 1).Key]); n != 2 {
				t.Errorf("%d versions after another step", n)
			}
			w.step(nil)
			if n := len(w.core.byKey[ask("j", 1).Key]); n != 2 || len(w.core.unsettled) > 0 {
				t.Errorf("%d versions in the end, unsettled %v", n, w.core.unsettled)
			}
		})
	}
}

// When many workers are returned at once, the core requeues them in several effects. Each
// effect fits in a transaction, whatever the size of the reservations.
func TestManyRequeuesFitTransactions(t *testing.T) {
	const workers = 300
	for _, payload := range []int{0, model.MaxPayload} {
		w := started()
		u := ask("j", workers)
		u.Spec.Task.Payload = make([]byte, payload)
		w.input(u)
		w.bring("a-1", isActive)
		chunk := &model.TaskChunk{UID: "a-1"}
		for i := range int32(workers) {
			chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: model.WorkerID{Index: i, Number: 1},
				State: model.WorkerFailed, Requeue: true})
		}
		actions := w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk})
		for range workers {
			actions = append(actions, w.step(nil)...)
		}
		requeued := 0
		for _, effect := range actionsOf[model.Effect](actions) {
			bytes := 0
			for _, record := range effect.Puts {
				if r, ok := record.(*model.Reservation); ok {
					bytes += len(r.Spec.Task.Payload)
					if r.UID != "a-1" { // all versions except the one whose workers failed
						requeued += r.Workers.Len()
					}
				}
			}
			if ops := len(effect.Puts) + len(effect.Events); ops > 120 || bytes > effectBytes+model.MaxPayload {
				t.Errorf("an effect of %d operations and %d bytes", ops, bytes)
			}
		}
		if requeued != workers {
			t.Errorf("%d of %d are queued again", requeued, workers)
		}
	}
}
