package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// fill has the store take no writes and no etcd leases until room is made.
func fill(f *store.Fake) (room func()) {
	f.SetHook(func(_ context.Context, call store.Call) store.Outcome {
		if !call.Adds() {
			return store.Outcome{}
		}
		return store.Full()
	})
	return func() { f.SetHook(nil) }
}

// In a store that is full, decisions are taken back: who asked for them is told so,
// and the core is given again, later, what it has not had.
func TestAFullStoreHoldsNothingUp(t *testing.T) {
	r := newRig(t)
	room := fill(r.fake)
	actions, err := r.driver.Round(t.Context(), []model.Event{
		ping{n: 7}, model.Input{Token: 1, Request: put{record: executor("a")}}, model.Input{Token: 2, Request: put{record: executor("b"), events: 1}},
	})
	if err != nil || len(actions) != 2 {
		t.Fatalf("%+v, %v", actions, err)
	}
	for _, action := range actions {
		if reply := action.(model.Reply); !fault.Is(reply.Err, fault.ReasonStoreFull) {
			t.Errorf("answered %+v", reply)
		}
	}
	if len(r.core.records) != 1 { // who leads
		t.Errorf("the core believes in %v", r.core.records)
	}
	// What comes before, and needs no write, is done.
	r.wantTold("pong 7", "put a", "put b", "abandoned")
	if due := r.driver.NextDeadline(); due.IsZero() {
		t.Error("it is never tried again")
	}
	replies, err := r.round(get{executor("a").Ref()})
	if err != nil || len(replies) != 1 || replies[0].Value != model.Record(nil) {
		t.Errorf("a read: %+v, %v", replies, err)
	}
	r.core.told = nil
	room()
	if replies, err := r.round(put{record: executor("a")}); err != nil || len(replies) != 1 || replies[0].Err != nil {
		t.Errorf("with room again: %+v, %v", replies, err)
	}
}

// What the core is given behind a decision that could not be written, it is given
// again, and no request with it.
func TestWhatAFullStoreCameBeforeIsGivenAgain(t *testing.T) {
	r := newRig(t)
	room := fill(r.fake)
	if _, err := r.driver.Round(t.Context(), []model.Event{model.Input{Token: 1, Request: put{record: executor("a")}}, ping{n: 7}}); err != nil {
		t.Fatal(err)
	}
	r.core.told = nil
	room()
	if _, err := r.driver.Round(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.wantTold("pong 7")
}

// A request that the core has not decided may be gone on with: nobody says that it
// changed nothing, and it is given again.
func TestAFullStoreDoesNotRefuseWhatIsUndecided(t *testing.T) {
	r := newRig(t)
	room := fill(r.fake)
	actions, err := r.driver.Round(t.Context(), []model.Event{
		model.Input{Token: 1, Request: put{record: executor("a")}}, model.Input{Token: 2, Request: mull{}},
	})
	if err != nil || len(actions) != 1 || actions[0].(model.Reply).Token != 1 {
		t.Fatalf("%+v, %v", actions, err)
	}
	r.core.told = nil
	room()
	if actions, err := r.driver.Round(t.Context(), nil); err != nil || len(actions) != 0 {
		t.Fatalf("%+v, %v", actions, err)
	}
	r.wantTold("mull")
}

// While the store is full reads are answered, those too that confirm the term, and
// writes say why they are not made; nobody has to do anything once there is room.
func TestReadsGoOnInAFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if _, err := a.Do(t.Context(), put{record: executor("x")}); err != nil {
			t.Fatal(err)
		}
		term := a.Status().Term
		room := fill(fake)
		wantFull := func(request put) {
			t.Helper()
			if _, err := a.Do(t.Context(), request); !fault.Is(err, fault.ReasonStoreFull) {
				t.Errorf("a write: %v", err)
			}
		}
		wantFull(put{record: executor("y")})
		wantFull(put{record: executor("z"), events: 1})
		asked := time.Now()
		for _, confirm := range []bool{true, false} {
			err := a.Read(t.Context(), confirm, func(core *toy) {
				if core.records[executor("x").Ref()] == nil || core.records[executor("y").Ref()] != nil {
					t.Errorf("it reads %v", core.records)
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
		wantFull(put{record: executor("y")})
		room()
		if _, err := a.Do(t.Context(), put{record: executor("y"), events: 1}); err != nil {
			t.Errorf("with room again: %v", err)
		}
		if now := a.Status().Term; now != term {
			t.Errorf("the term was %d and is %d", term, now)
		}
	})
}

// Where an attempt at a write was lost before, its outcome stays open: who waits is
// told that it is perhaps applied, and it is once there is room.
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
			t.Errorf("with room again: %v", err)
		}
		if _, found, err := fake.Get(t.Context(), space.Key(executor("y").Ref())); !found || err != nil {
			t.Errorf("what was open is there: %v, %v", found, err)
		}
	})
}
