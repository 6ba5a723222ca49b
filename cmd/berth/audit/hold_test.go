package audit

import (
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// bound returns the record of a held reservation after a bind, n seconds after its grant.
func bound(r *model.Reservation, n int) *model.Reservation {
	next := *r
	next.BoundAt = since.Add(time.Duration(n) * time.Second)
	return &next
}

// renamed returns a version with another UID.
func renamed(r *model.Reservation) *model.Reservation {
	next := *r
	next.UID = "renamed"
	return &next
}

// hold writes a reservation that is held for 10 seconds, and its lease.
func (w *world) hold() (*model.Reservation, *model.LeaseChunk) {
	r, limit := reservation("held", 1, 2), 10*time.Second
	r.Spec.Hold, r.Spec.HoldTimeout = true, &limit
	l := lease(r, w.put(r), w.revision, 1)
	l.GrantedAt = since
	w.put(l)
	return r, l
}

// TestHolds plays holds, with and without a violation.
func TestHolds(t *testing.T) {
	expiring := func(r *model.Reservation, n int) *model.Reservation {
		next := *r
		next.Spec.ExpireAt = since.Add(time.Duration(n) * time.Second)
		return &next
	}
	for name, c := range map[string]struct {
		write func(*world)
		want  []Rule
	}{
		"a bind, and then a task": {func(w *world) {
			r, l := w.hold()
			w.put(bound(r, 9))
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(bound(r, 9), model.Active))
		}, nil},
		"a worker of a bound version is requeued": {func(w *world) {
			r, l := w.hold()
			w.put(bound(r, 9))
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(bound(r, 9), model.Active))
			w.put(lostWorker(task(l, model.WorkerAssigned), 0))
			w.put(requeue("again", bound(r, 9)))
		}, nil},
		"a requeue of a bound worker that is held again": {func(w *world) {
			r, l := w.hold()
			w.put(bound(r, 9))
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(bound(r, 9), model.Active))
			w.put(lostWorker(task(l, model.WorkerAssigned), 0))
			w.put(requeue("again", r))
		}, []Rule{RuleHold}},
		"the workers of a bound version are queued in its place": {func(w *world) {
			r, _ := w.hold()
			w.put(bound(r, 9))
			w.put(in(bound(r, 9), model.Replaced), renamed(bound(r, 9)))
		}, nil},
		"the workers of a bound version are held in its place": {func(w *world) {
			r, _ := w.hold()
			w.put(bound(r, 9))
			w.put(in(bound(r, 9), model.Replaced), renamed(r))
		}, []Rule{RuleHold}},
		"a withdrawn version that is bound": {func(w *world) {
			r, _ := w.hold()
			w.put(in(r, model.Replaced), renamed(bound(r, 9)))
		}, []Rule{RuleHold}},
		"an expiry that was extended before the bind": {func(w *world) {
			r, _ := w.hold()
			w.put(expiring(r, 2))
			w.put(expiring(r, 8))
			w.put(bound(expiring(r, 8), 7))
		}, nil},
		"a task without a bind": {func(w *world) {
			_, l := w.hold()
			w.put(header(l), task(l, model.WorkerAssigned))
		}, []Rule{RuleHold}},
		"a bind at the end of the hold": {func(w *world) {
			r, _ := w.hold()
			w.put(bound(r, 10))
		}, []Rule{RuleHold}},
		"a bind after the expiry": {func(w *world) {
			r, _ := w.hold()
			w.put(expiring(r, 2))
			w.put(bound(expiring(r, 2), 2))
		}, []Rule{RuleHold}},
		"a second bind": {func(w *world) {
			r, _ := w.hold()
			w.put(bound(r, 1))
			w.put(bound(r, 2))
		}, []Rule{RuleHold}},
		"a bind that is taken back": {func(w *world) {
			r, _ := w.hold()
			w.put(bound(r, 1))
			w.put(r)
		}, []Rule{RuleHold}},
		"a bind before the grant": {func(w *world) {
			r := reservation("held", 1, 1)
			r.Spec.Hold = true
			w.put(r)
			w.put(bound(r, 1))
		}, []Rule{RuleHold}},
		"a bind of a reservation without a hold": {func(w *world) {
			r := reservation("other", 1, 1)
			w.put(lease(r, w.put(r), w.revision, 1))
			w.put(bound(r, 1))
		}, []Rule{RuleHold}},
		"a version that begins bound": {func(w *world) {
			r := reservation("held", 1, 1)
			r.Spec.Hold = true
			w.put(bound(r, 1))
		}, []Rule{RuleHold}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.write(w)
			wantRules(t, w.audit(), c.want...)
		})
	}
}
