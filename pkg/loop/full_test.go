package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// fill makes the store refuse writes and etcd leases until the test calls freeSpace.
func fill(f *store.Fake) (freeSpace func()) {
	f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if !call.Adds() {
			return store.Outcome{}
		}
		return store.Full()
	})
	return func() { f.SetHook(nil) }
}

// If the store is full, the driver abandons the decisions. The requests fail with that
// reason, and the core receives the remaining events again later.
func TestFullStoreBlocksNothing(t *testing.T) {
	r := newRig(t)
	freeSpace := fill(r.fake)
	actions, err := r.driver.Round(t.Context(), []model.Event{
		ping{n: 7}, model.Input{Token: 1, Request: put{record: executor("a")}},
		model.Input{Token: 2, Request: put{record: executor("b"), events: 1}},
	})
	if err != nil || len(actions) != 2 {
		t.Fatalf("%+v, %v", actions, err)
	}
	for _, action := range actions {
		if reply := action.(model.Reply); !fault.Is(reply.Err, fault.ReasonStoreFull) {
			t.Errorf("answered %+v", reply)
		}
	}
	if len(r.core.records) != 1 { // the leader record
		t.Errorf("the core believes in %v", r.core.records)
	}
	// Events before the first write are done and not repeated.
	r.wantReceived("pong 7", "put a", "put b", "abandoned")
	if due := r.driver.NextDeadline(); due.IsZero() {
		t.Error("no retry is scheduled")
	}
	replies, err := r.round(get{executor("a").Ref()})
	if err != nil || len(replies) != 1 || replies[0].Value != model.Record(nil) {
		t.Errorf("a read: %+v, %v", replies, err)
	}
	r.core.received = nil
	freeSpace()
	if replies, err := r.round(put{record: executor("a")}); err != nil || len(replies) != 1 || replies[0].Err != nil {
		t.Errorf("after space was freed: %+v, %v", replies, err)
	}
}

// If a decision cannot be written, the core receives the events that follow it again, but
// not the requests.
func TestFullStoreDefersEvents(t *testing.T) {
	r := newRig(t)
	freeSpace := fill(r.fake)
	if _, err := r.driver.Round(t.Context(), []model.Event{model.Input{Token: 1, Request: put{record: executor("a")}},
		ping{n: 7}}); err != nil {
		t.Fatal(err)
	}
	r.core.received = nil
	freeSpace()
	if _, err := r.driver.Round(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.wantReceived("pong 7")
}

// wantFull checks the answer to a request in a full store.
func wantFull(t *testing.T, action model.Action, token uint64, outcome string) {
	t.Helper()
	reply, ok := action.(model.Reply)
	if !ok || reply.Token != token || !fault.Is(reply.Err, fault.ReasonStoreFull) ||
		!strings.Contains(reply.Err.Error(), "; "+outcome) {
		t.Errorf("answered %+v, want token %d: %s", action, token, outcome)
	}
}

// The core may still work on an undecided request. The answer therefore leaves the outcome
// open, and no later action is carried out.
func TestFullStoreKeepsUndecidedRequestsOpen(t *testing.T) {
	r := newRig(t)
	freeSpace := fill(r.fake)
	actions, err := r.driver.Round(t.Context(), []model.Event{
		model.Input{Token: 1, Request: put{record: executor("a")}}, model.Input{Token: 2, Request: slowRequest{}},
	})
	if err != nil || len(actions) != 2 {
		t.Fatalf("%+v, %v", actions, err)
	}
	wantFull(t, actions[0], 1, "this call changed nothing")
	wantFull(t, actions[1], 2, "the request may have been applied")
	r.core.received = nil
	freeSpace()
	if actions, err := r.driver.Round(t.Context(), nil); err != nil || len(actions) != 0 {
		t.Fatalf("%+v, %v", actions, err)
	}
	r.wantReceived()
}

// A deposed leader that does not know its state must not report that a call changed
// nothing, because its successor may have applied the call. The store refuses the etcd
// lease of job events before any write could prove the term.
func TestDeposedLeaderDoesNotReportAFullStore(t *testing.T) {
	r := newRig(t)
	r.grant = store.ErrFull
	actions, err := r.driver.Round(t.Context(), []model.Event{model.Input{Token: 1,
		Request: put{record: executor("a"), events: 1}}})
	if err != nil || len(actions) != 1 {
		t.Fatalf("a leader: %+v, %v", actions, err)
	}
	wantFull(t, actions[0], 1, "this call changed nothing")
	r.deposed = true
	actions, err = r.driver.Round(t.Context(), []model.Event{model.Input{Token: 2,
		Request: put{record: executor("b"), events: 1}}})
	if !errors.Is(err, store.ErrFenced) || len(actions) != 0 {
		t.Errorf("a deposed leader: %+v, %v", actions, err)
	}
}

// If the first effect of a request is durable and the store refuses the next one, the
// request has changed something. The answer says that the outcome is open.
func TestFullStoreKeepsPartlyDurableRequestsOpen(t *testing.T) {
	r := newRig(t)
	writes := 0
	r.fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if !call.Adds() {
			return store.Outcome{}
		}
		if writes++; writes == 1 {
			return store.Outcome{}
		}
		return store.Full()
	})
	first, second := executor("a1"), executor("a2")
	first.Address = strings.Repeat("a", 200<<10) // too large to share a transaction
	second.Address = first.Address
	actions, err := r.driver.Round(t.Context(), []model.Event{
		model.Input{Token: 1, Request: put{record: second, before: first}},
		model.Input{Token: 2, Request: put{record: executor("b")}},
	})
	if err != nil || len(actions) != 2 {
		t.Fatalf("%+v, %v", actions, err)
	}
	wantFull(t, actions[0], 1, "the request may have been applied")
	wantFull(t, actions[1], 2, "this call changed nothing")
}

// While the store is full, reads are answered, including those that confirm the term.
// Writes fail with the reason. When the store has space again, writes succeed without any
// action.
func TestReadsContinueInAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if _, err := a.Do(t.Context(), put{record: executor("x")}); err != nil {
			t.Fatal(err)
		}
		term := a.Status().Term
		freeSpace := fill(fake)
		refused := func(request put) {
			t.Helper()
			if _, err := a.Do(t.Context(), request); !fault.Is(err, fault.ReasonStoreFull) {
				t.Errorf("a write: %v", err)
			}
		}
		refused(put{record: executor("y")})
		refused(put{record: executor("z"), events: 1})
		asked := time.Now()
		for _, confirm := range []bool{true, false} {
			err := a.Read(t.Context(), confirm, func(core *toy) {
				if core.records[executor("x").Ref()] == nil || core.records[executor("y").Ref()] != nil {
					t.Errorf("records read: %v", core.records)
				}
			})
			if err != nil {
				t.Errorf("a read: %v", err)
			}
		}
		if took := time.Since(asked); took > 0 {
			t.Errorf("reads took %v", took)
		}
		time.Sleep(time.Hour)
		refused(put{record: executor("y")})
		freeSpace()
		if _, err := a.Do(t.Context(), put{record: executor("y"), events: 1}); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
		if now := a.Status().Term; now != term {
			t.Errorf("the term was %d and is %d", term, now)
		}
	})
}

// If an earlier attempt of a write was lost, its outcome is open. The answer says that the
// write may have been applied. The write is applied once the store has space.
func TestAnOpenWriteInAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		lost := false
		fake.SetHook(func(_ context.Context, call store.Call) store.Outcome {
			switch {
			case call.Method != store.MethodTxn:
				return store.Outcome{}
			case !lost:
				lost = true
				return store.Drop()
			}
			return store.Full()
		})
		_, err := a.Do(t.Context(), put{record: executor("y")})
		if !fault.Is(err, fault.ReasonStoreFull) {
			t.Errorf("answered %v", err)
		}
		fake.SetHook(nil)
		time.Sleep(time.Minute)
		if _, err := a.Do(t.Context(), put{record: executor("z")}); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
		if _, found, err := fake.Get(t.Context(), space.Key(executor("y").Ref())); !found || err != nil {
			t.Errorf("the open write: found %v, %v", found, err)
		}
	})
}
