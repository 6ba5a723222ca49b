package queue

import (
	"strings"
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// asked sends an upsert and returns its error, or nil.
func asked(w *world, job, name string, count int32, change func(*model.Upsert)) *fault.Error {
	u := model.Upsert{Key: model.Key{Job: job, Stage: "s", Name: name}, Count: count}
	if change != nil {
		change(&u)
	}
	for _, action := range w.input(u) {
		if reply, ok := action.(model.Reply); ok {
			return fault.Of(reply.Err)
		}
	}
	return nil
}

func wantOverLimit(t *testing.T, f *fault.Error, option string) {
	t.Helper()
	if f == nil || f.Kind != fault.Exhausted || f.Reason != fault.ReasonOverloaded ||
		!strings.Contains(f.Message, "(option "+option+" of the registry)") {
		t.Errorf("got %v, want a refusal by %s", f, option)
	}
}

func wantTaken(t *testing.T, f *fault.Error) {
	t.Helper()
	if f != nil {
		t.Errorf("refused: %v", f)
	}
}

func TestQueuedReservationsAreBoundedPerJobAndInAll(t *testing.T) {
	w := newWorld(Config{MaxQueuedPerJob: 2, MaxQueued: 3})
	w.successor(10)
	wantTaken(t, asked(w, "a", "1", 2, nil))
	wantTaken(t, asked(w, "a", "2", 1, nil))
	before := w.core.dump()
	wantOverLimit(t, asked(w, "a", "3", 1, nil), "max-queued-per-job")
	if w.core.dump() != before {
		t.Error("a rejected request changed something")
	}
	// A caller may repeat or replace a queued reservation at the limit, because neither takes
	// another place in the queue.
	wantTaken(t, asked(w, "a", "1", 2, nil))
	wantTaken(t, asked(w, "a", "1", 1, nil))
	wantTaken(t, asked(w, "a", "1", 7, nil))
	wantTaken(t, asked(w, "b", "1", 1, nil))
	wantOverLimit(t, asked(w, "b", "2", 1, nil), "max-queued")
	w.input(request.Cancel{Key: model.Key{Job: "a", Stage: "s", Name: "2"}})
	wantTaken(t, asked(w, "b", "2", 1, nil))
}

func TestStoredBytesAreBoundedPerJobAndInAll(t *testing.T) {
	payload := func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 50<<10) }
	w := newWorld(Config{MaxStoredPerJob: 120 << 10, MaxStored: 180 << 10})
	w.successor(10)
	wantTaken(t, asked(w, "a", "1", 1, payload))
	wantTaken(t, asked(w, "a", "2", 1, payload))
	wantOverLimit(t, asked(w, "a", "3", 1, payload), "max-stored-bytes-per-job")
	wantTaken(t, asked(w, "a", "3", 1, nil)) // a request without a payload needs less space
	wantTaken(t, asked(w, "b", "1", 1, payload))
	wantOverLimit(t, asked(w, "b", "2", 1, payload), "max-stored-bytes")
	// Ended versions use storage until the registry forgets them.
	w.input(request.CancelJob{Job: "a"})
	wantOverLimit(t, asked(w, "a", "4", 1, payload), "max-stored-bytes-per-job")
	w.now = w.now.Add(model.KeepTerminal)
	w.step(nil)
	wantTaken(t, asked(w, "a", "4", 1, payload))
}

// A bind may not exceed a limit with a larger task. It is refused as a whole.
func TestTaskOfABindIsBounded(t *testing.T) {
	w := newWorld(Config{MaxStoredPerJob: 120 << 10, MaxStored: 1 << 20})
	w.successor(10)
	key := model.Key{Job: "a", Stage: "s", Name: "1"}
	wantTaken(t, asked(w, "a", "1", 1, func(u *model.Upsert) { u.Spec.Hold = true }))
	wantTaken(t, asked(w, "a", "2", 1, func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 60<<10) }))
	view, _ := w.core.Get(key)
	lease := w.leaseOf(view.Reservation.UID)
	lease.Record.(*model.LeaseChunk).GrantedAt = w.now
	w.foreign(lease)
	bind := func(payload int) *fault.Error {
		task := &model.Task{Payload: make([]byte, payload)}
		for _, action := range w.input(request.Bind{Key: key, Task: task}) {
			if reply, ok := action.(model.Reply); ok {
				return fault.Of(reply.Err)
			}
		}
		return nil
	}
	wantOverLimit(t, bind(60<<10), "max-stored-bytes-per-job")
	if f := bind(64<<10 + 1); f == nil || f.Reason != fault.ReasonTooLarge || f.Fields[0].Name != "task.payload" {
		t.Errorf("got %v, want TOO_LARGE of task.payload", f)
	}
	if view, _ := w.core.Get(key); view.State != model.Held {
		t.Errorf("after refused binds the reservation is %s", view.State)
	}
	wantTaken(t, bind(50<<10))
}

// When single workers of a queued reservation are cancelled, each cancel leaves an ended
// version.
func TestCancelsOfWorkersAreBoundedWithAReserve(t *testing.T) {
	const limit = 1 << 20
	w := newWorld(Config{MaxStoredPerJob: limit, MaxStored: limit})
	w.successor(10)
	wantTaken(t, asked(w, "a", "1", 1000, func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 50<<10) }))
	cancel := func(index int32) *fault.Error {
		for _, action := range w.input(request.CancelWorkers{Job: "a", Stage: "s",
			Workers: []model.WorkerID{{Index: index, Number: 1}}}) {
			if reply, ok := action.(model.Reply); ok {
				return fault.Of(reply.Err)
			}
		}
		return nil
	}
	index := int32(0)
	for cancel(index) == nil {
		if index++; index == 100 {
			t.Fatal("100 calls were accepted")
		}
	}
	if stored := w.core.stored.bytes; stored <= limit || stored > limit+limit/cancelReserve {
		t.Errorf("%d bytes are stored; want the limit of %d and less than the reserve", stored, limit)
	}
	before := w.core.dump()
	wantOverLimit(t, cancel(index), "max-stored-bytes-per-job")
	if w.core.dump() != before {
		t.Error("a rejected request changed something")
	}
	wantOverLimit(t, asked(w, "b", "1", 1, nil), "max-stored-bytes")
	// A cancel of the whole job leaves no additional version.
	w.input(request.CancelJob{Job: "a"})
	if n := w.core.stored.queued; n != 0 {
		t.Errorf("%d reservations are queued after the job was cancelled", n)
	}
	w.now = w.now.Add(model.KeepTerminal)
	w.step(nil)
	wantTaken(t, asked(w, "b", "1", 1, nil))
}

// The limits never reject requeues or rounds, so accepted work continues.
func TestRequeuesAreNotBounded(t *testing.T) {
	w := newWorld(Config{MaxQueuedPerJob: 1, MaxQueued: 1, MaxStored: 4 << 10, MaxStoredPerJob: 4 << 10})
	w.successor(10)
	wantTaken(t, asked(w, "a", "main", 2, func(u *model.Upsert) { u.Spec.MaxAttempts = 5 }))
	key := model.Key{Job: "a", Stage: "s", Name: "main"}
	uid := w.core.byKey[key][0].uid
	var workers []model.TaskWorker
	for i := range int32(2) {
		workers = append(workers, model.TaskWorker{ID: model.WorkerID{Index: i, Number: 1}, State: model.WorkerFailed,
			Requeue: true})
	}
	w.foreign(
		model.Changed{Ref: model.Ref{Kind: model.KindTaskHeader, ID: uid},
			Record: &model.TaskHeader{UID: uid, Key: key, Complete: true}},
		model.Changed{Ref: model.Ref{Kind: model.KindTaskChunk, ID: uid},
			Record: &model.TaskChunk{UID: uid, Workers: workers}},
	)
	w.step(nil)
	if n := w.core.stored.queued; n != 2 {
		t.Errorf("%d reservations are queued, want both requeues", n)
	}
	wantOverLimit(t, asked(w, "a", "more", 1, nil), "max-queued-per-job")
}
