package dispatch

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// prepare returns a world with a leader and n present executors.
func prepare(t *testing.T, executors int) *world {
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

// dispatched creates the task of a lease and returns the resulting actions.
func (w *world) dispatched(t *testing.T, uid string, ordinals ...uint32) []model.Action {
	t.Helper()
	w.reservation(uid, model.Queued, 3)
	w.lease(uid, ordinals...)
	w.progress()
	w.dispatch(1, uid)
	return w.settled(t)
}

// settled commits until no effect is pending, and returns the actions that were carried
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
	t.Fatal("the core still decides after 100 commits")
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

func workerID(index int32) model.WorkerID { return model.WorkerID{Index: index, Number: 1} }

func TestPitfallALateFailureAffectsAnotherWorkerOnTheExecutor(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0, 0)
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(1), Attempt: 1,
		Outcome: Accepted{Status: Status{State: model.WorkerRunning}, Incarnation: 1,
			Sequence: 1}})
	w.settled(t)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
			Outcome: Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.now = w.now.Add(6 * time.Second)
		w.step(nil)
		w.settled(t)
	}
	if s := w.state("u1", workerID(0)); s != model.WorkerFailed {
		t.Errorf("the worker refused three times is %s", s)
	}
	if s := w.state("u1", workerID(1)); s != model.WorkerRunning {
		t.Errorf("the other worker is %s", s)
	}
}

func TestPitfallAMaximumOfThreeAttemptsRunsFour(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	for attempt := int32(1); attempt <= 5; attempt++ {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
			Outcome: Refused{Reason: fault.ReasonNotAllowed}})
		w.settled(t)
		w.now = w.now.Add(6 * time.Second)
		w.step(nil)
	}
	if got := len(w.sent[workerKey{0, "u1", workerID(0)}]); got != 3 {
		t.Errorf("%d attempts were sent", got)
	}
}

func TestPitfallAPoisonedConnectionServesEveryRetry(t *testing.T) {
	w := prepare(t, 1)
	first := of[Submit](w.dispatched(t, "u1", 0))
	if len(first) != 1 || first[0].Fresh {
		t.Fatalf("first submit %+v", first)
	}
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1, Outcome: Unknown{"reset"}})
	w.settled(t)
	w.now = w.now.Add(time.Second)
	again := of[Submit](w.step(nil))
	if len(again) != 1 || !again[0].Fresh {
		t.Fatalf("second submit %+v", again)
	}
}

// An earlier system lost the metadata of workers on the way to the agents, so every job
// became perpetual. In Berth, every request has the whole task and the full name of the
// worker.
func TestPitfallTheMetadataOfAWorkerIsLost(t *testing.T) {
	task := model.Task{
		Command: "/bin/worker", Args: []string{"-a", "b"}, Env: map[string]string{"KIND": "batch"}, Payload: []byte{0, 1},
		StopGrace: 3 * time.Second,
	}
	w := prepare(t, 1)
	w.reservation("u1", model.Queued, 3, func(r *model.Reservation) { r.Spec.Task = task })
	w.lease("u1", 0)
	w.progress()
	w.dispatch(1, "u1")
	submits := of[Submit](w.settled(t))
	w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1, Outcome: Unknown{"reset"}})
	w.settled(t)
	w.now = w.now.Add(time.Second)
	submits = append(submits, of[Submit](w.step(nil))...)
	if len(submits) != 2 {
		t.Fatalf("%d submits", len(submits))
	}
	for _, s := range submits {
		if !reflect.DeepEqual(*s.Task, task) || s.Epoch != 7 || s.UID != "u1" || s.Worker != workerOf("u1", workerID(0)) ||
			s.Address != "e0:7200" {
			t.Errorf("the request lost something: %+v", s)
		}
	}
}

func TestPitfallEveryRetryEmitsAStartEvent(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	events := 0
	for sequence := int64(1); sequence <= 3; sequence++ {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
			Outcome: Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: 1,
				Sequence: sequence}})
		for _, e := range w.effects {
			events += len(e.Events)
		}
		w.settled(t)
	}
	if events != 1 {
		t.Errorf("%d events", events)
	}
}

func TestPitfallABrokenExecutorIsRetriedInATightLoop(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	for range 200 {
		w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: 1,
			Outcome: Refused{Reason: fault.ReasonOtherIncarnation}})
		w.settled(t)
		if next := w.core.NextDeadline(); next.After(w.now) {
			w.now = next
		}
		w.step(nil)
	}
	// The loop repeats 200 refusals that do not count as attempts. Each repeat follows a pause
	// of up to 5 s, 2.5 s on average.
	if took := w.now.Sub(newWorld(Config{}).now); took < 200*2*time.Second {
		t.Errorf("200 repeats took %v", took)
	}
}

func TestPitfallASilentExecutorKeepsItsCallsForever(t *testing.T) {
	w := prepare(t, 2)
	limit := Default.PerExecutor
	w.dispatched(t, "u1", make([]uint32, limit+2)...)
	if got := w.core.Stats(); got.InFlight != limit || got.Waiting != 2 {
		t.Fatalf("at an executor that takes %d: %+v", limit, got)
	}
	w.now = w.now.Add(2 * requestTimeout)
	w.step(nil)
	w.settled(t)
	if w.sent[workerKey{0, "u1", workerID(int32(limit) + 1)}] == nil {
		t.Error("the queued requests were never sent")
	}
}

// An earlier system retried for longer than the job waited, so both replaced the worker. In
// Berth, the job gets one event for a worker that could not be started. The event states
// whether Berth requeues the worker.
func TestPitfallBothBerthAndTheJobReplaceAWorker(t *testing.T) {
	for _, onFailure := range []model.OnFailure{model.OnFailureUnset, model.OnFailureRequeue, model.OnFailureNotify} {
		w := prepare(t, 1)
		w.reservation("u1", model.Queued, 2, func(r *model.Reservation) { r.Spec.OnFailure = onFailure })
		w.lease("u1", 0)
		w.progress()
		w.dispatch(1, "u1")
		w.settled(t)
		events := map[model.EventKind]int{}
		for attempt := int32(1); attempt <= 4; attempt++ {
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
				Outcome: Refused{Reason: fault.ReasonNotAllowed}})
			for _, effect := range w.effects {
				for _, e := range effect.Events {
					events[e.Kind]++
				}
			}
			w.settled(t)
			w.now = w.now.Add(time.Second)
			w.step(nil)
			w.settled(t)
		}
		_, workers, _ := w.core.Task("u1")
		requeue := onFailure != model.OnFailureNotify
		want := map[bool]model.EventKind{true: model.EventWorkerRequeued, false: model.EventWorkerFailed}[requeue]
		if workers[0].Requeue != requeue || len(events) != 1 || events[want] != 1 {
			t.Errorf("on failure %d: marked %v, events %v", onFailure, workers[0].Requeue, events)
		}
	}
}

// An earlier system retried a broken worker on the same host forever. In Berth, the
// attempts on one executor are limited, and the next round avoids that executor.
func TestPitfallABrokenWorkerIsRetriedOnTheSameHost(t *testing.T) {
	w := prepare(t, 2)
	w.dispatched(t, "u1", 1)
	for attempt := int32(1); attempt <= 3; attempt++ {
		w.step(SubmitDone{Executor: "e1", UID: "u1", WorkerID: workerID(0), Attempt: attempt,
			Outcome: Refused{Reason: fault.ReasonStartFailed, Message: "bad disk"}})
		w.settled(t)
		w.now = w.now.Add(time.Minute)
		w.step(nil)
		w.settled(t)
	}
	page, _, _ := w.core.Assignments(Filter{}, "", 10)
	_, workers, _ := w.core.Task("u1")
	if !workers[0].Requeue || workers[0].Ordinal != 1 || len(w.sent[workerKey{1, "u1", workerID(0)}]) != 3 {
		t.Errorf("%+v, sent %v", workers[0], w.sent)
	}
	if a := page[0]; a.Executor != "e1" || a.Attempts != 3 || a.LastError.String() != "START_FAILED: bad disk" ||
		a.Reason != fault.ReasonAttemptsExhausted || !a.Requeue {
		t.Errorf("shown as %+v", a)
	}
}

// In an earlier system, a new leader with a cold cache deleted every record as an orphan.
// In Berth, a core decides nothing until it is elected, and it is elected only when its
// view is complete.
func TestPitfallAFreshLeaderWithAColdViewRemovesEveryRecord(t *testing.T) {
	w := prepare(t, 1)
	w.dispatched(t, "u1", 0)
	c := New(Config{})
	for _, kinds := range [][]model.Kind{{model.KindTaskHeader, model.KindTaskChunk},
		{model.KindExecutor, model.KindLive, model.KindLeaseChunk, model.KindReservation}} {
		for ref, s := range w.records {
			for _, kind := range kinds {
				if ref.Kind == kind {
					if got := c.Step(w.now, model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod}); len(got) > 0 {
						t.Fatalf("%v caused the actions %+v", ref, got)
					}
				}
			}
		}
		if got := c.Step(w.now.Add(time.Hour), model.Progress{Revision: w.revision}); len(got) > 0 ||
			!c.NextDeadline().IsZero() {
			t.Fatalf("a standby does %+v, and wants to be called", got)
		}
	}
	actions := c.Step(w.now, model.Elected{Term: w.revision + 1, Revision: w.revision + 1})
	if len(of[model.Effect](actions)) > 0 || len(of[Submit](actions)) != 1 {
		t.Errorf("actions after the election: %+v", actions)
	}
}

// In an earlier system, a new leader was correct but unusable for minutes. In Berth, a core
// that follows the view sends all due requests in the step in which it is elected.
func TestPitfallANewLeaderIsUnusableForMinutes(t *testing.T) {
	w := prepare(t, 2)
	w.dispatched(t, "u1", 0, 1)
	w.dispatched(t, "u2", 0)
	w.reservation("u2", model.Cancelling, 3)
	w.progress()
	w.settled(t)
	carried := w.succeed()
	if len(of[Submit](carried)) != 2 || len(of[Stop](carried)) != 1 {
		t.Errorf("requests after the election: %+v", carried)
	}
}

// In an earlier system, a service carried out the call of a deposed leader. In Berth, the
// assigner refuses calls of an earlier term of the registry, and each of its own requests
// has its leader's term.
func TestPitfallRequestsOfADeposedLeaderAreAccepted(t *testing.T) {
	w := prepare(t, 1)
	term := w.registry()
	w.reservation("u1", model.Queued, 3)
	w.lease("u1", 0)
	w.progress()
	replies := of[model.Reply](w.step(model.Input{Token: 1,
		Request: model.Dispatch{Term: term - 1, Tasks: []model.DispatchTask{{Key: key("u1"), UID: "u1"}}}}))
	if len(replies) != 1 || !fault.Is(replies[0].Err, fault.ReasonLowerTerm) {
		t.Errorf("answered %+v", replies)
	}
	w.dispatch(2, "u1")
	first := of[Submit](w.settled(t))
	second := of[Submit](w.succeed())
	if len(first) != 1 || len(second) != 1 || second[0].Term <= first[0].Term {
		t.Errorf("submits %+v and %+v", first, second)
	}
}

// A call with a forged term is refused and does not affect the calls of the registry.
func TestAForgedTermDoesNotBlockDispatches(t *testing.T) {
	w := prepare(t, 1)
	w.registry()
	for i, term := range []int64{math.MaxInt64, w.revision + 100, w.registry() + 1, 0, -1} {
		uid := "u" + strconv.Itoa(i)
		w.reservation(uid, model.Queued, 1)
		w.lease(uid, 0)
		w.progress()
		w.step(model.Input{Token: uint64(100 + i), Request: model.Dispatch{Term: term}})
		taken := of[model.Reply](w.dispatch(uint64(200+i), uid))
		taken = append(taken, of[model.Reply](w.settled(t))...)
		ok := false
		for _, reply := range taken {
			ok = ok || reply.Token == uint64(200+i) && reply.Err == nil && reply.Value.([]model.DispatchOutcome)[0].Accepted
		}
		if !ok {
			t.Errorf("after a call of term %d the registry is answered %+v", term, taken)
		}
	}
}

// The core accepts a term that LeaderTerm reports before the view has the term's record.
func TestLeadsReportsATermBeforeTheView(t *testing.T) {
	c := New(Default)
	now := time.Unix(1_000_000, 0)
	c.Step(now, model.Elected{Term: 10, Revision: 10})
	answered := func(term int64) error {
		_, err := c.dispatch(model.Dispatch{Term: term})
		return err
	}
	c.Step(now, model.LeaderTerm{Service: model.ServiceRegistry, Term: 20})
	c.Step(now, model.Changed{Ref: model.LeaderRef(model.ServiceRegistry), Mod: 15}) // an earlier leader's key is deleted
	if err := answered(20); err != nil {
		t.Error(err)
	}
	c.Step(now, model.Progress{Revision: 30})
	c.Step(now, model.Changed{Ref: model.LeaderRef(model.ServiceRegistry), Mod: 30})
	c.Step(now, model.LeaderTerm{Service: model.ServiceRegistry, Term: 20}) // an outdated answer
	if err := answered(20); !fault.Is(err, fault.ReasonLowerTerm) {
		t.Errorf("after the view has reached it: %v", err)
	}
}

// A worker with the highest number has no next number. If such a worker fails, its end is
// recorded as a failure without a requeue.
func TestAWorkerWithTheHighestNumberIsNotRequeued(t *testing.T) {
	for number, requeue := range map[int32]bool{model.MaxNumber: false, model.MaxNumber - 1: true} {
		w := prepare(t, 1)
		last := model.WorkerID{Index: 0, Number: number}
		w.reservation("u1", model.Queued, 1, func(r *model.Reservation) {
			r.Workers = model.WorkerSetOf([]model.WorkerID{last})
			r.Spec.MaxAttempts = 2
		})
		chunk := &model.LeaseChunk{UID: "u1", Key: key("u1"), Chunks: 1, Total: 1, Epoch: 7, GrantedAt: w.now,
			Workers: []model.Placement{{Worker: last}}}
		w.write(chunk.Ref(), chunk)
		w.progress()
		w.dispatch(1, "u1")
		w.settled(t)
		events := map[model.EventKind]int{}
		for attempt := int32(1); attempt <= 2; attempt++ {
			w.step(SubmitDone{Executor: "e0", UID: "u1", WorkerID: last, Attempt: attempt,
				Outcome: Refused{Reason: fault.ReasonNotAllowed}})
			for _, effect := range w.effects {
				for _, e := range effect.Events {
					events[e.Kind]++
				}
			}
			w.settled(t)
			w.now = w.now.Add(time.Second)
			w.step(nil)
			w.settled(t)
		}
		_, workers, _ := w.core.Task("u1")
		want := map[bool]model.EventKind{true: model.EventWorkerRequeued, false: model.EventWorkerFailed}[requeue]
		if workers[0].Requeue != requeue || events[want] != 1 || len(events) != 1 {
			t.Errorf("number %d: %+v, events %v", number, workers[0], events)
		}
	}
}
