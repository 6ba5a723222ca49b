package dispatch

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func TestPromise7AnAnswerOfAnOlderEpochChangesNothing(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 9, Workers: []WorkerStatus{
		{Worker: model.Worker{Job: "job-u1", Stage: "map", ID: workerID(0)}, UID: "u0", Epoch: 3,
			Status: Status{State: model.WorkerFailed}},
		{Worker: model.Worker{Job: "job-u1", Stage: "map", ID: workerID(0)}, UID: "u1", Epoch: 3,
			Status: Status{State: model.WorkerFailed}},
	}}})
	w.step(SubmitDone{Executor: "e0", UID: "u0", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 10}})
	if len(w.effects) > 0 || w.state("u1", workerID(0)) != model.WorkerAssigned {
		t.Errorf("%s, %d effects", w.state("u1", workerID(0)), len(w.effects))
	}
}

// Executor state 10: a report that contradicts the record never ends a worker, so it never
// frees capacity that may be in use. If a report lists the UID and worker ID, or comes from
// another executor, it does not prove that the worker is absent. Only a complete later
// report of the worker's own executor without the worker proves that.
func TestExecutorState10AContradictoryReportFreesNothing(t *testing.T) {
	recorded := WorkerStatus{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
		Status: Status{State: model.WorkerRunning}}
	but := func(change func(*WorkerStatus)) []WorkerStatus {
		s := recorded
		change(&s)
		return []WorkerStatus{s}
	}
	for name, r := range map[string]Report{
		"another epoch": {Executor: "e0", Incarnation: 1, Workers: but(func(s *WorkerStatus) { s.Epoch = 3 })},
		"a later epoch": {Executor: "e0", Incarnation: 1, Workers: but(func(s *WorkerStatus) { s.Epoch = 8 })},
		"another name": {Executor: "e0", Incarnation: 1,
			Workers: but(func(s *WorkerStatus) { s.Worker.Job = "other" })},
		"no state known here": {Executor: "e0", Incarnation: 1, Workers: but(func(s *WorkerStatus) { s.State = 99 })},
		"a state not its own": {Executor: "e0", Incarnation: 1,
			Workers: but(func(s *WorkerStatus) { s.State = model.WorkerLost })},
		"elsewhere": {Executor: "e1", Incarnation: 1, Workers: but(func(s *WorkerStatus) {})},
		"ended elsewhere": {Executor: "e1", Incarnation: 1,
			Workers: but(func(s *WorkerStatus) { s.State = model.WorkerFailed })},
		"absent on another executor": {Executor: "e1", Incarnation: 1},
		"another copy":               {Executor: "e0", Incarnation: 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t, 2)
			w.dispatched(t, "u1", 0)
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
				Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
					Sequence: 1}})
			w.settled(t)
			r.Sequence, r.Complete = 2, true
			got := w.step(model.Input{Token: 2, Request: r})
			got = append(got, w.settled(t)...)
			// The core stops the reported worker, but the recorded worker does not end with it.
			for _, stop := range of[Stop](got) {
				w.step(StopDone{Executor: stop.Executor, Worker: stop.Worker, UID: stop.UID, Epoch: stop.Epoch,
					Result: Ended{State: model.WorkerEvicted}})
			}
			w.settled(t)
			if s := w.state("u1", workerID(0)); s != model.WorkerRunning {
				t.Errorf("the worker is %s", s)
			}
			w.step(model.Input{Token: 3, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 3, Complete: true}})
			w.settled(t)
			if s := w.state("u1", workerID(0)); s != model.WorkerLost {
				t.Errorf("after a report without the worker its state is %s", s)
			}
		})
	}
}

// If the decision on a report is abandoned, the core restores the worker that the report
// had ended. The core does not stop that worker as an orphan.
func TestExecutorState10ARecordedWorkerIsNoOrphan(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	w.settled(t)
	w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 2, Complete: true}})
	listed := Report{Executor: "e0", Incarnation: 1, Sequence: 3, Complete: true, Workers: []WorkerStatus{
		{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7, Status: Status{State: model.WorkerRunning}},
	}}
	w.step(model.Input{Token: 3, Request: listed})
	w.abandon()
	got := append(w.step(nil), w.step(model.Input{Token: 4, Request: listed})...)
	got = append(got, w.settled(t)...)
	if len(of[Stop](got)) > 0 || w.state("u1", workerID(0)) != model.WorkerRunning {
		t.Errorf("%s after %+v", w.state("u1", workerID(0)), got)
	}
}

// The answer to a report has the number of the executor's orphaned workers. A worker counts
// until the executor reports its end.
func TestExecutorState10TheAnswerCountsOrphans(t *testing.T) {
	w := prepare(t, 2)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	w.settled(t)
	mine := WorkerStatus{Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
		Status: Status{State: model.WorkerRunning}}
	unknown := WorkerStatus{Worker: workerOf("u0", workerID(0)), UID: "u0", Epoch: 3,
		Status: Status{State: model.WorkerRunning}}
	report := func(executor string, sequence int64, complete bool, workers ...WorkerStatus) int {
		got := w.step(model.Input{Token: uint64(sequence), Request: Report{Executor: executor, Incarnation: 1,
			Sequence: sequence, Complete: complete, Workers: workers}})
		for _, reply := range of[model.Reply](append(got, w.settled(t)...)) {
			return reply.Value.(Reported).Orphans
		}
		t.Fatal("no answer")
		return 0
	}
	ended := unknown
	ended.State = model.WorkerEvicted
	for i, said := range []int{
		report("e0", 2, true, mine),           // 0
		report("e0", 3, false, mine, unknown), // 1
		report("e0", 4, false, mine),          // 1: an incomplete report does not list the orphaned worker
		report("e0", 5, false, ended),         // 0
		report("e1", 6, true, mine, unknown),  // 2: one worker is recorded on e0, the other is unknown
		report("e1", 7, true, mine),           // 1
		report("e1", 8, true),                 // 0
	} {
		if want := []int{0, 1, 1, 0, 2, 1, 0}[i]; said != want {
			t.Errorf("the answer to report %d has %d orphans, want %d", i+1, said, want)
		}
	}
}

// An agent may report any number of unknown workers. The core has a limited number of stop
// requests for them at a time. The remaining workers get a stop request with a later
// report.
func TestStopRequestsForOrphansAreLimited(t *testing.T) {
	w := prepare(t, 2)
	report := func(sequence int64, executor string, from, to int) int {
		var workers []WorkerStatus
		for i := from; i < to; i++ {
			workers = append(workers, WorkerStatus{Worker: workerOf("u0", workerID(int32(i))), UID: "u0", Epoch: 3,
				Status: Status{State: model.WorkerRunning}})
		}
		got := w.step(model.Input{Token: uint64(sequence), Request: Report{Executor: executor, Incarnation: 1,
			Sequence: sequence, Complete: true, Workers: workers}})
		for _, reply := range of[model.Reply](append(got, w.settled(t)...)) {
			return reply.Value.(Reported).Orphans
		}
		t.Fatal("no answer")
		return 0
	}
	for i, step := range []struct {
		executor         string
		from, to         int
		orphans, ordered int
	}{
		{"e0", 0, maxOrphans + 500, maxOrphans + 500, maxOrphans},
		{"e0", maxOrphans, maxOrphans + 500, 500, 500}, // the first maxOrphans workers have ended
		{"e1", 0, 2 * maxOrphans, 2 * maxOrphans, maxOrphans + 500},
		{"e0", 0, 0, 0, maxOrphans},
		{"e1", 0, 0, 0, 0},
	} {
		orphans := report(int64(i+2), step.executor, step.from, step.to)
		if orphans != step.orphans || w.core.orphanCount != step.ordered {
			t.Errorf("report %d: %d orphans and %d requests, want %d and %d", i, orphans, w.core.orphanCount, step.orphans,
				step.ordered)
		}
	}
	w.core.orphanCount = maxAllOrphans
	if report(100, "e0", 0, 1) != 1 || len(w.core.host(0).orphans) != 0 {
		t.Error("a stop request exceeds the total limit")
	}
}

func TestPromise2ThreeLeadersShareTheLimitOfAttempts(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
			Outcome: Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.succeed()
		w.settled(t)
	}
	// The successors did not know which calls their predecessor had in flight. The executor
	// must therefore promise not to start the worker.
	if s := w.state("u1", workerID(0)); s != model.WorkerEvict {
		t.Errorf("%s after three attempts under three leaders", s)
	}
}

func TestPromise1ALargeTaskStartsAfterItsLastChunkIsDurable(t *testing.T) {
	const n = 50_000
	w := prepare(t, 1)
	ordinals := make([]uint32, n)
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", ordinals...)
	w.progress()
	w.dispatch(1, "u1")
	if len(w.effects) != 3 {
		t.Fatalf("%d effects for 196 chunks", len(w.effects))
	}
	carried, _ := w.commit(2)
	if got := of[Submit](carried); len(got) > 0 {
		t.Fatalf("%d submits before the header is complete", len(got))
	}
	// The leader fails here. The successor continues and answers the repeated call.
	carried = append(w.succeed(), w.settled(t)...)
	header, workers, _ := w.core.Task("u1")
	if !header.Complete || len(workers) != n {
		t.Fatalf("%+v with %d workers", header, len(workers))
	}
	if got := of[Submit](carried); len(got) != Default.PerExecutor {
		t.Errorf("%d submits, want the limit of one executor", len(got))
	}
	replies := of[model.Reply](w.dispatch(2, "u1"))
	if len(replies) != 1 || !replies[0].Value.([]model.DispatchOutcome)[0].Accepted {
		t.Errorf("replies %+v", replies)
	}
}

func TestPromise1AnIncompleteTaskIsRemovedWithItsReservation(t *testing.T) {
	w := prepare(t, 1)
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", make([]uint32, maxTaskAtOnce+1)...)
	w.progress()
	w.dispatch(1, "u1")
	w.commit(1)
	w.write(reservationRef("u1"), nil)
	w.succeed()
	w.settled(t)
	for ref := range w.records {
		if ref.Kind == model.KindTaskHeader || ref.Kind == model.KindTaskChunk {
			t.Errorf("%+v was not deleted", ref)
		}
	}
}

func TestThePagesOfAssignmentsHaveEachAssignmentOnce(t *testing.T) {
	w := prepare(t, 3)
	w.dispatched(t, "u1", 0, 1, 2, 0)
	w.dispatched(t, "u2", 1, 1, 2)
	for _, c := range []struct {
		filter Filter
		want   int
	}{
		{Filter{}, 7}, {Filter{Job: "job-u2"}, 3}, {Filter{Executor: "e1"}, 3},
		{Filter{State: model.WorkerAssigned}, 7}, {Filter{State: model.WorkerLost}, 0}, {Filter{Job: "nobody"}, 0},
		{Filter{Job: "job-u2", Stage: "none"}, 0}, {Filter{Job: "job-u2", Name: "none"}, 0},
		{Filter{Job: "job-u2", Stage: w.core.tasks["u2"].header.Key.Stage, Name: w.core.tasks["u2"].header.Key.Name}, 3},
	} {
		seen, token := map[string]bool{}, ""
		for {
			page, next, err := w.core.Assignments(c.filter, token, 2)
			if err != nil || len(page) > 2 {
				t.Fatalf("%d assignments, %v", len(page), err)
			}
			for _, a := range page {
				seen[a.UID+a.ID.String()] = true
			}
			if token = next; token == "" {
				break
			}
		}
		if len(seen) != c.want {
			t.Errorf("%+v: %d, want %d", c.filter, len(seen), c.want)
		}
	}
	if _, _, err := w.core.Assignments(Filter{}, "nonsense", 2); !fault.Is(err, fault.ReasonInvalid) {
		t.Errorf("an invalid token: %v", err)
	}
}

// The requests in flight are limited, both in total and for each executor. When a call
// ends, the next request is sent.
func TestPromise1RequestsInFlightAreLimited(t *testing.T) {
	w := newWorld(Config{InFlight: 6, PerExecutor: 2})
	var ordinals []uint32
	for n := range uint32(4) {
		w.executor(n, 1, false)
		w.present(fmt.Sprintf("e%d", n), true)
		ordinals = append(ordinals, n, n, n, n, n)
	}
	w.registry()
	w.progress()
	w.elect()
	submits, most := of[Submit](w.dispatched(t, "u1", ordinals...)), 0
	for sequence := int64(1); len(submits) > 0; sequence++ {
		most = max(most, w.core.Stats().InFlight)
		o := submits[0]
		submits = submits[1:]
		carried := w.step(SubmitDone{Executor: o.Executor, UID: o.UID, WorkerID: o.Worker.ID, Attempt: o.Attempt,
			Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1, Sequence: sequence}})
		submits = append(submits, of[Submit](append(carried, w.settled(t)...))...)
	}
	if counts := w.core.tasks["u1"].counts; most != 6 || counts[model.WorkerRunning] != 20 {
		t.Errorf("at most %d in flight, of 6; in the end %v", most, counts)
	}
	for _, failed := range w.failed {
		t.Error(failed)
	}
}

// The backoff has full jitter: each pause is random between zero and a ceiling. The ceiling
// doubles with each failure up to a cap. The pause differs between workers.
func TestPromise2BackoffIsExponentialWithFullJitter(t *testing.T) {
	c := New(Default)
	const workers = 4000
	for failures, ceiling := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 400 * time.Millisecond, 4: 800 * time.Millisecond,
		6: 3200 * time.Millisecond, 7: 5 * time.Second, 80: 5 * time.Second,
	} {
		var sum, most time.Duration
		least, pauses := time.Hour, map[time.Duration]bool{}
		for i := range int32(workers) {
			key := workerKey{uint32(i % 7), "u1", workerID(i)}
			pause := c.backoff(key, failures)
			if again := c.backoff(key, failures); again != pause {
				t.Fatalf("a replay takes %v in place of %v", again, pause)
			}
			sum, most, least, pauses[pause] = sum+pause, max(most, pause), min(least, pause), true
		}
		mean := sum / workers
		if most > ceiling || most < ceiling*95/100 || least > ceiling*5/100 || mean < ceiling*45/100 ||
			mean > ceiling*55/100 || len(pauses) < workers*99/100 {
			t.Errorf("failure %d: from %v to %v, %v in the mean, %d different; the ceiling is %v", failures, least, most, mean,
				len(pauses), ceiling)
		}
	}
}

// After a failure, the core does not send the next attempt before the backoff of that
// failure has passed.
func TestPromise2AnAttemptWaitsForItsBackoff(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	for attempt := int32(1); attempt < 3; attempt++ {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
			Outcome: Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		pause := w.core.backoff(workerKey{0, "u1", workerID(0)}, int(attempt))
		if next := w.core.NextDeadline(); !next.Equal(w.now.Add(pause)) {
			t.Fatalf("after failure %d the core wants to be called at %v, in place of %v", attempt, next, w.now.Add(pause))
		}
		w.now = w.now.Add(pause - 1)
		if early := of[Submit](w.step(nil)); len(early) > 0 {
			t.Fatalf("attempt %d was sent before its time", early[0].Attempt)
		}
		w.now = w.now.Add(1)
		if due := of[Submit](w.step(nil)); len(due) != 1 || due[0].Attempt != attempt+1 {
			t.Fatalf("after the pause %+v was sent", due)
		}
	}
}

// The shell gets a deadline for each attempt. If the shell never reports the outcome, the
// attempt fails after twice that time and counts as an attempt.
func TestPromise2EveryAttemptHasADeadline(t *testing.T) {
	w := prepare(t, 1)
	for _, s := range of[Submit](w.dispatched(t, "u1", 0)) {
		if s.Timeout != requestTimeout {
			t.Errorf("attempt %d may take %v", s.Attempt, s.Timeout)
		}
	}
	for w.state("u1", workerID(0)) == model.WorkerAssigned {
		next := w.core.NextDeadline()
		if next.IsZero() || w.now.Sub(newWorld(Config{}).now) > time.Minute {
			t.Fatalf("the core still waits for an unanswered attempt at %v", w.now)
		}
		w.now = next
		w.step(nil)
		w.settled(t)
	}
	_, workers, _ := w.core.Task("u1")
	if got := workers[0]; got.State != model.WorkerEvict || got.Attempts != 3 ||
		len(w.sent[workerKey{0, "u1", workerID(0)}]) != 3 {
		t.Errorf("after all attempts %+v, sent %v", got, w.sent)
	}
}

// A leader fails at every step in turn, both before and after the failure of an attempt is
// durable. No durable attempt is forgotten, and at most the attempt in flight is repeated.
func TestPromise2AChangeOfLeaderRepeatsAtMostOneAttempt(t *testing.T) {
	const limit = 3
	for crash := range int32(2 * limit) {
		w := prepare(t, 1)
		w.dispatched(t, "u1", 0)
		for step := int32(0); w.state("u1", workerID(0)) == model.WorkerAssigned; step++ {
			_, workers, _ := w.core.Task("u1")
			before := workers[0].Attempts
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: before + 1,
				Outcome: Refused{Reason: fault.ReasonNotAllowed}})
			if step == crash/2 && crash%2 == 0 {
				w.succeed()
				if _, workers, _ := w.core.Task("u1"); workers[0].Attempts != before {
					t.Fatalf("crash %d: %d attempts after %d", crash, workers[0].Attempts, before)
				}
			} else {
				w.settled(t)
				if step == crash/2 {
					w.succeed()
				}
				if _, workers, _ := w.core.Task("u1"); workers[0].Attempts != before+1 {
					t.Fatalf("crash %d: %d attempts after %d", crash, workers[0].Attempts, before+1)
				}
			}
			w.settled(t)
			w.now = w.now.Add(6 * time.Second)
			w.step(nil)
			w.settled(t)
		}
		sent := 0
		for _, times := range w.sent[workerKey{0, "u1", workerID(0)}] {
			sent += times
		}
		if sent < limit || sent > limit+1 {
			t.Errorf("crash %d: %d start requests, at most %d attempts: %v", crash, sent, limit, w.sent)
		}
	}
}

// When an executor confirms the end of a worker, the core decides the end in the same step.
// The commit of that step frees the capacity.
func TestPromise5AConfirmedEndIsDecidedAtOnce(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1, Outcome: Unknown{"reset"}})
	w.settled(t)
	w.reservation("u1", model.Cancelling, 3)
	w.progress()
	carried := w.settled(t)
	w.now = w.now.Add(time.Minute)
	carried = append(carried, w.step(nil)...)
	if len(of[Submit](carried)) > 0 || len(of[Stop](carried)) == 0 {
		t.Fatalf("after the cancel %+v was sent", carried)
	}
	w.step(StopDone{Executor: "e0", Worker: workerOf("u1", workerID(0)), UID: "u1", Epoch: 7,
		Result: Ended{State: model.WorkerEvicted}})
	if _, workers, _ := w.core.Task("u1"); len(w.effects) != 1 || workers[0].State != model.WorkerEvicted {
		t.Errorf("%d effects, and the worker is %s", len(w.effects), workers[0].State)
	}
}

// over places the workers on the executors in turn and returns the ordinals.
func over(executors uint32, workers int) []uint32 {
	ordinals := make([]uint32, workers)
	for i := range ordinals {
		ordinals[i] = uint32(i) % executors
	}
	return ordinals
}

// If a leader fails while it cancels many single workers, the successor cancels the
// remaining ones.
func TestPromise5ManySingleWorkersAreCancelledAcrossALeaderChange(t *testing.T) {
	const n, unwanted = 25_000, 21_000
	w := prepare(t, 100)
	w.dispatched(t, "u1", over(100, n)...)
	w.reservation("u1", model.Queued, 3, func(r *model.Reservation) {
		r.Unwanted = model.WorkerSet{{First: 0,
			Last: unwanted - 1, Number: 1}}
	})
	w.progress()
	if len(w.effects) < 2 {
		t.Fatalf("%d effects for 83 chunks", len(w.effects))
	}
	w.commit(1)
	w.succeed()
	w.settled(t)
	counts := w.core.tasks["u1"].counts
	if got := counts[model.WorkerEvict] + counts[model.WorkerEvicted]; got != unwanted ||
		counts[model.WorkerAssigned] != n-unwanted {
		t.Errorf("%d of %d are stopped: %v", got, unwanted, counts)
	}
	if left := w.core.tasks["u1"].leaving; left != 0 {
		t.Errorf("%d have no stop yet", left)
	}
}

// The withdrawal of a large gang takes more than one effect. A successor that finds the
// first effect in the store completes the withdrawal.
func TestPromise4ASuccessorContinuesAWithdrawal(t *testing.T) {
	const n = maxTaskAtOnce + 1000
	w := prepare(t, 100)
	ordinals := over(99, n)
	ordinals[n-1] = 99
	w.reservation("u1", model.Queued, 1, func(r *model.Reservation) { r.Spec.Start = model.StartTogether })
	w.lease("u1", ordinals...)
	w.progress()
	w.dispatch(1, "u1")
	w.settled(t)
	w.step(SubmitDone{Executor: "e99", UID: "u1", WorkerID: workerID(n - 1), Attempt: 1,
		Outcome: Refused{Reason: fault.ReasonNotAllowed}})
	if len(w.effects) < 2 {
		t.Fatalf("%d effects", len(w.effects))
	}
	w.commit(1)
	w.succeed()
	w.settled(t)
	header, workers, _ := w.core.Task("u1")
	if !header.Withdrawn || !header.Stopping || header.Reason != fault.ReasonNotTogether || header.Message == "" {
		t.Errorf("header %+v", header)
	}
	for _, worker := range workers {
		if worker.State < model.WorkerEvict || worker.Reason != fault.ReasonNotTogether {
			t.Fatalf("%+v", worker)
		}
	}
}

// An executor that accepted a worker under an earlier incarnation may still run the worker.
// The worker ends only when the executor promises not to start it.
func TestPromise6AWorkerOfAnEarlierIncarnationKeepsItsCapacity(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	w.executor(0, 2, false)
	w.progress()
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	w.settled(t)
	w.reservation("u1", model.Cancelling, 3)
	w.progress()
	w.settled(t)
	if s := w.state("u1", workerID(0)); s != model.WorkerEvict {
		t.Errorf("state after the cancel: %s", s)
	}
}

// Before the registry is ready, a missing record proves nothing. A worker whose executor
// has no record becomes LOST only after the registry is ready.
func TestExecutorState10BeforeReadyAMissingRecordLosesNoWorker(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	ready := &model.Ready{Since: w.now}
	w.write(ready.Ref(), nil)
	w.write(executorRef("e0"), nil)
	w.progress()
	w.settled(t)
	if s := w.state("u1", workerID(0)); s != model.WorkerAssigned {
		t.Errorf("before the registry is ready, the worker is %s", s)
	}
	w.write(ready.Ref(), ready)
	w.progress()
	w.settled(t)
	if s := w.state("u1", workerID(0)); s != model.WorkerLost {
		t.Errorf("state after ready: %s", s)
	}
}

// An operator can clear a worker only if its stop is overdue. A worker that is not
// acknowledged or not running cannot be cleared.
func TestPromise6OnlyAnOverdueStopIsCleared(t *testing.T) {
	for name, accept := range map[string]bool{FindingNotAcknowledged: false, FindingNotRunning: true} {
		w := prepare(t, 1)
		w.reservation("u1", model.Queued, 100)
		w.lease("u1", 0)
		w.progress()
		w.dispatch(1, "u1")
		w.settled(t)
		if accept {
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
				Outcome: Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: 1,
					Sequence: 1}})
			w.settled(t)
		}
		w.now = w.now.Add(time.Hour)
		w.step(nil)
		w.settled(t)
		if found := w.core.Findings(w.now); len(found) != 1 || found[0].Kind != name {
			t.Fatalf("found %v", found)
		}
		before := w.state("u1", workerID(0))
		replies := of[model.Reply](w.step(model.Input{Token: 3, Request: Clear{
			Executor: "e0", RequestID: "r", Workers: []Assigned{{workerOf("u1", workerID(0)), 7}},
		}}))
		if len(replies) != 1 || !fault.Is(replies[0].Err, fault.ReasonNotQuarantined) ||
			w.state("u1", workerID(0)) != before {
			t.Errorf("%s: %+v, and the worker is %s", name, replies, w.state("u1", workerID(0)))
		}
	}
}
