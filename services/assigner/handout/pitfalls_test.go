package handout

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// scene is a world with one leader and n executors that are present.
func scene(t *testing.T, executors int) *world {
	t.Helper()
	w := newWorld(Config{})
	for n := range executors {
		w.executor(uint32(n), 1, false)
		w.present(fmt.Sprintf("e%d", n), true)
	}
	w.registry()
	w.progress()
	w.elect()
	t.Cleanup(func() {
		for _, failed := range w.failed {
			t.Error(failed)
		}
	})
	return w
}

// handedOut creates the task of a lease and answers what was then sent.
func (w *world) handedOut(t *testing.T, uid string, ordinals ...uint32) []model.Action {
	t.Helper()
	w.reservation(uid, model.Queued, 3)
	w.lease(uid, ordinals...)
	w.progress()
	w.handOver(1, uid)
	return w.settled(t)
}

// settled commits until nothing is left to, and answers all that was carried
// out.
func (w *world) settled(t *testing.T) (all []model.Action) {
	t.Helper()
	for range 100 {
		if len(w.effects) == 0 {
			return all
		}
		carried, _ := w.commit(len(w.effects))
		all = append(append(all, carried...), w.step(nil)...)
	}
	t.Fatal("the core does not come to rest")
	return nil
}

func of[T model.Action](actions []model.Action) (all []T) {
	for _, action := range actions {
		if a, ok := action.(T); ok {
			all = append(all, a)
		}
	}
	return all
}

func seat(index int32) model.Seat { return model.Seat{Index: index, Number: 1} }

func TestALateFailureOfOneWorkerLeavesAnotherOnTheSameExecutorAlone(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0, 0)
	w.step(SubmitDone{"e0", "u1", seat(1), 1, Accepted{State: model.WorkerRunning, Incarnation: 1, Sequence: 1}})
	w.settled(t)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.step(SubmitDone{"e0", "u1", seat(0), attempt, Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.now = w.now.Add(6 * time.Second)
		w.step(nil)
		w.settled(t)
	}
	if s := w.state("u1", seat(0)); s != model.WorkerFailed {
		t.Errorf("the worker refused three times is %s", s)
	}
	if s := w.state("u1", seat(1)); s != model.WorkerRunning {
		t.Errorf("its neighbour is %s", s)
	}
}

func TestMaximumThreeAttemptsAreThree(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0)
	for attempt := int32(1); attempt <= 5; attempt++ {
		w.step(SubmitDone{"e0", "u1", seat(0), attempt, Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.now = w.now.Add(6 * time.Second)
		w.step(nil)
	}
	if got := len(w.sent[orderKey{0, "u1", seat(0)}]); got != 3 {
		t.Errorf("%d attempts were sent", got)
	}
}

func TestEveryRetryTakesAFreshConnectionAndKeepsTheTask(t *testing.T) {
	w := scene(t, 1)
	first := of[Submit](w.handedOut(t, "u1", 0))
	if len(first) != 1 || first[0].Fresh {
		t.Fatalf("first order %+v", first)
	}
	w.step(SubmitDone{"e0", "u1", seat(0), 1, Unknown{"reset"}})
	w.settled(t)
	w.now = w.now.Add(time.Second)
	again := of[Submit](w.step(nil))
	if len(again) != 1 || !again[0].Fresh {
		t.Fatalf("second order %+v", again)
	}
	for _, s := range []Submit{first[0], again[0]} {
		if s.Task.Command != "/bin/worker" || s.Epoch != 7 || s.Worker.Job != "job-u1" || s.Address != "e0:7200" {
			t.Errorf("the order dropped something on the way: %+v", s)
		}
	}
}

func TestTheStartOfAWorkerIsToldOnce(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0)
	told := 0
	for sequence := int64(1); sequence <= 3; sequence++ {
		w.step(SubmitDone{"e0", "u1", seat(0), 1, Accepted{State: model.WorkerStarting, Incarnation: 1, Sequence: sequence}})
		for _, e := range w.effects {
			told += len(e.Events)
		}
		w.settled(t)
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

func TestABrokenExecutorIsNotAskedInATightLoop(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0)
	for range 200 {
		w.step(SubmitDone{"e0", "u1", seat(0), 1, Refused{Reason: fault.ReasonOtherIncarnation}})
		w.settled(t)
		if next := w.core.NextDeadline(); next.After(w.now) {
			w.now = next
		}
		w.step(nil)
	}
	// 200 refusals that do not count, at up to 5 s of pause each, 2.5 s at the
	// mean.
	if spent := w.now.Sub(newWorld(Config{}).now); spent < 200*2*time.Second {
		t.Errorf("200 repeats took %v", spent)
	}
}

func TestAnExecutorThatNeverAnswersDoesNotKeepItsPermit(t *testing.T) {
	w := scene(t, 2)
	w.handedOut(t, "u1", 0, 0, 0, 0, 0, 0)
	if got := w.core.Stats(); got.InFlight != 4 || got.Waiting != 2 {
		t.Fatalf("four at an executor: %+v", got)
	}
	w.now = w.now.Add(10 * time.Second)
	w.step(nil)
	w.settled(t)
	if w.sent[orderKey{0, "u1", seat(5)}] == nil {
		t.Error("the orders behind were never sent")
	}
}

func TestAnAnswerOfAnOlderEpochTouchesNothing(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0)
	w.step(model.Input{Token: 2, Request: Report{Executor: "e0", Incarnation: 1, Sequence: 9, Workers: []WorkerStatus{
		{Worker: model.Worker{Job: "job-u1", Stage: "map", Seat: seat(0)}, UID: "u0", Epoch: 3, State: model.WorkerFailed},
		{Worker: model.Worker{Job: "job-u1", Stage: "map", Seat: seat(0)}, UID: "u1", Epoch: 3, State: model.WorkerFailed},
	}}})
	w.step(SubmitDone{"e0", "u0", seat(0), 1, Accepted{State: model.WorkerRunning, Incarnation: 1, Sequence: 10}})
	if len(w.effects) > 0 || w.state("u1", seat(0)) != model.WorkerAssigned {
		t.Errorf("%s, %d effects", w.state("u1", seat(0)), len(w.effects))
	}
}

func TestABudgetSpentByTwoLeadersIsOneBudget(t *testing.T) {
	w := scene(t, 1)
	w.handedOut(t, "u1", 0)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.step(SubmitDone{"e0", "u1", seat(0), attempt, Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.succeed()
		w.settled(t)
	}
	// The successors could not know what their predecessor had under way, so
	// that the executor has to promise.
	if s := w.state("u1", seat(0)); s != model.WorkerEvict {
		t.Errorf("%s after three attempts under three leaders", s)
	}
}

func TestALargeTaskIsSubmittedOnlyOnceItsLastChunkIsThere(t *testing.T) {
	const n = 50_000
	w := scene(t, 1)
	ordinals := make([]uint32, n)
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", ordinals...)
	w.progress()
	w.handOver(1, "u1")
	if len(w.effects) != 3 {
		t.Fatalf("%d effects for 196 chunks", len(w.effects))
	}
	carried, _ := w.commit(2)
	if got := of[Submit](carried); len(got) > 0 {
		t.Fatalf("%d submits before the header is complete", len(got))
	}
	// The leader dies here. The successor goes on, and the call, repeated, is
	// answered.
	carried = append(w.succeed(), w.settled(t)...)
	header, workers, _ := w.core.Task("u1")
	if !header.Complete || len(workers) != n {
		t.Fatalf("%+v with %d workers", header, len(workers))
	}
	if got := of[Submit](carried); len(got) != 4 {
		t.Errorf("%d submits, want as many as one executor takes", len(got))
	}
	replies := of[model.Reply](w.handOver(2, "u1"))
	if len(replies) != 1 || !replies[0].Value.([]CreateOutcome)[0].Taken {
		t.Errorf("replies %+v", replies)
	}
}

func TestAPartOfATaskIsRemovedWhenItsReservationIsGone(t *testing.T) {
	w := scene(t, 1)
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", make([]uint32, maxTaskAtOne+1)...)
	w.progress()
	w.handOver(1, "u1")
	w.commit(1)
	w.write(reservationRef("u1"), nil)
	w.succeed()
	w.settled(t)
	for ref := range w.records {
		if ref.Kind == model.KindTaskHeader || ref.Kind == model.KindTaskChunk {
			t.Errorf("%+v is left", ref)
		}
	}
}

func TestThePagesOfAssignmentsAreTheWholeOnce(t *testing.T) {
	w := scene(t, 3)
	w.handedOut(t, "u1", 0, 1, 2, 0)
	w.handedOut(t, "u2", 1, 1, 2)
	for _, c := range []struct {
		filter Filter
		want   int
	}{
		{Filter{}, 7}, {Filter{Job: "job-u2"}, 3}, {Filter{Executor: "e1"}, 3},
		{Filter{State: model.WorkerAssigned}, 7}, {Filter{State: model.WorkerLost}, 0}, {Filter{Job: "nobody"}, 0},
	} {
		seen, token := map[string]bool{}, ""
		for {
			page, next, err := w.core.Assignments(c.filter, token, 2)
			if err != nil || len(page) > 2 {
				t.Fatalf("%d assignments, %v", len(page), err)
			}
			for _, a := range page {
				seen[a.UID+a.Seat.String()] = true
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
		t.Errorf("a token that was never given out: %v", err)
	}
}
