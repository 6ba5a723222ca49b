package queue

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// holdWorld returns a world in which j/s is held on h1 for an hour and expires after two.
func holdWorld(t *testing.T) (*world, model.Key) {
	t.Helper()
	w := newWorld(Config{})
	w.successor(10)
	host := &model.Executor{ID: "h1", Ordinal: 1}
	w.foreign(model.Changed{Ref: host.Ref(), Record: host})
	key, limit := model.Key{Job: "j", Stage: "s", Name: "main"}, time.Hour
	w.input(model.Upsert{Key: key, Count: 1, Spec: model.Spec{Hold: true, HoldTimeout: &limit}})
	view, _ := w.core.Get(key)
	lease := w.leaseOf(view.Reservation.UID)
	lease.Record.(*model.LeaseChunk).GrantedAt = w.now
	lease.Record.(*model.LeaseChunk).Workers = []model.Placement{{Ordinal: 1}}
	w.foreign(lease)
	if view, _ = w.core.Get(key); view.State != model.Held {
		t.Fatalf("the reservation is %s", view.State)
	}
	return w, key
}

// A bind is refused from the end of the hold on, although the core has not ended the version
// yet: the request may be the first event after a long pause.
func TestBindAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*world, model.Key)
		want   fault.Reason
	}{
		{"just in time", func(w *world, _ model.Key) { w.now = w.now.Add(time.Hour - 1) }, ""},
		{"holdTimeout", func(w *world, _ model.Key) { w.now = w.now.Add(time.Hour) }, fault.ReasonNotHeld},
		{"expireAt", func(w *world, key model.Key) {
			limit := time.Hour
			w.input(model.Upsert{Key: key, Count: 1, Spec: model.Spec{Hold: true, HoldTimeout: &limit,
				ExpireAt: w.now.Add(time.Minute)}})
			w.now = w.now.Add(time.Minute)
		}, fault.ReasonNotHeld},
		{"an executor that is LOST", func(w *world, _ model.Key) {
			host := &model.Executor{ID: "h1", Ordinal: 1, Lost: true}
			changed := model.Changed{Ref: host.Ref(), Record: host}
			w.write(changed)
			w.core.Step(w.now, changed) // and no further change yet, so the core decides nothing
		}, fault.ReasonNotHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, key := holdWorld(t)
			c.change(w, key)
			var got fault.Reason
			for _, action := range w.input(request.Bind{Key: key, Task: &model.Task{Command: "run"}}) {
				if reply, ok := action.(model.Reply); ok && reply.Err != nil {
					got = fault.Of(reply.Err).Reason
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The indexes of holds follow from the records: they are empty once nothing awaits a bind, in
// whatever order the view shows the records.
func TestHoldIndexesFollowRecords(t *testing.T) {
	w, key := holdWorld(t)
	check := func(what string, on, lost int) {
		t.Helper()
		c := w.core
		if len(c.heldOn) != on || len(c.lost) != lost {
			t.Errorf("%s: holds on %d executors, %d lost; want %d and %d", what, len(c.heldOn), len(c.lost), on, lost)
		}
		for _, v := range c.versions {
			if !v.awaitsBind() && v.lostWorkers != 0 {
				t.Errorf("%s: %s has %d lost workers", what, v.uid, v.lostWorkers)
			}
		}
	}
	check("held", 1, 0)
	w.input(request.Bind{Key: key, Task: &model.Task{Command: "run"}})
	check("bound", 0, 0)

	// Another replica sees the lease first and the reservation last.
	view, _ := w.core.Get(key)
	held := *view.Reservation
	held.UID, held.BoundAt = "z-1", time.Time{}
	for number := range int32(3) {
		chunk := &model.LeaseChunk{UID: "z-1", Chunk: number, Chunks: 3, GrantedAt: w.now,
			Workers: []model.Placement{{Ordinal: 1}, {Ordinal: uint32(2 + number)}}}
		w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk})
	}
	check("a lease without a reservation", 0, 0)
	w.foreign(model.Changed{Ref: held.Ref(), Record: &held})
	check("a held reservation", 4, 0)
	for n := range 4 {
		host := &model.Executor{ID: fmt.Sprintf("h%d", n+1), Ordinal: uint32(n + 1), Draining: n == 2}
		w.foreign(model.Changed{Ref: host.Ref(), Record: host})
	}
	check("a draining executor", 0, 1) // the version was withdrawn
	w.foreign(model.Changed{Ref: (&model.Executor{ID: "h3"}).Ref()})
	check("a deleted executor", 0, 0)
}
