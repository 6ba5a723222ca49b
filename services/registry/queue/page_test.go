package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// place returns a reservation as the token of a page would.
func place(t *rapid.T, r *model.Reservation) *model.Reservation {
	last, valid := scheduler.ParsePlace(scheduler.PlaceOf(r))
	if !valid {
		t.Fatalf("%q is not a place", scheduler.PlaceOf(r))
	}
	return last
}

// The pages of a queue have its order. While the queue changes between two pages, they have
// every reservation that stays in the queue exactly once, even if the last reservation of a
// page leaves it.
func TestPagesOfAQueueThatChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order, err := scheduler.OrderNamed(rapid.SampledFrom([]string{"epoch", "class"}).Draw(t, "strategy"))
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(Config{Scheduling: scheduler.Config{Order: order}})
		w.successor(10)
		asked := 0
		upsert := func() {
			u := ask(fmt.Sprint("j", asked), 1)
			asked++
			u.Spec.Constraints.SKU = rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "sku")
			u.Spec.Priority.Class = model.Class(rapid.IntRange(0, 3).Draw(t, "class"))
			u.Spec.Priority.Tier = rapid.Int32Range(0, 2).Draw(t, "tier")
			if at := rapid.Int64Range(-3, 3).Draw(t, "order"); at > 0 {
				u.Spec.Priority.Order = &at
			}
			w.input(u)
		}
		for range rapid.IntRange(0, 20).Draw(t, "reservations") {
			upsert()
		}
		group := constraint.Constraints{SKU: "x"}.Group()
		whole, _ := w.core.Queue(group, model.StateUnset, nil, math.MaxInt)
		stays := map[string]bool{}
		for i, view := range whole {
			if view.Position != i+1 || view.Reservation.Spec.Constraints.SKU != "x" {
				t.Fatalf("%s at %d has position %d", view.Reservation.UID, i+1, view.Position)
			}
			stays[view.Reservation.UID] = true
		}
		if want := w.naiveQueue(group); !slices.Equal(keysOf(whole), want) {
			t.Fatalf("the queue has %v, want %v", keysOf(whole), want)
		}
		seen := map[string]bool{}
		var last *model.Reservation
		for more := true; more; {
			var views []View
			views, more = w.core.Queue(group, model.StateUnset, last, rapid.IntRange(1, 4).Draw(t, "size"))
			if more && len(views) == 0 {
				t.Fatal("a page is empty and not the last")
			}
			for _, view := range views {
				if r := view.Reservation; seen[r.UID] || last != nil && w.core.scheduler.Compare(last, r) >= 0 {
					t.Fatalf("%s is listed twice or out of order", r.UID)
				}
				seen[view.Reservation.UID], last = true, place(t, view.Reservation)
			}
			for _, view := range whole {
				if rapid.IntRange(0, 9).Draw(t, "leaves") == 0 || last != nil && view.Reservation.UID == last.UID {
					w.input(request.Cancel{Key: view.Reservation.Key})
					delete(stays, view.Reservation.UID)
				}
			}
			for range rapid.IntRange(0, 2).Draw(t, "more") {
				upsert()
			}
		}
		for uid := range stays {
			if !seen[uid] {
				t.Fatalf("%s is missing of %v", uid, seen)
			}
		}
	})
}

func keysOf(views []View) (keys []string) {
	for _, view := range views {
		keys = append(keys, view.Reservation.Key.String())
	}
	return keys
}

// naiveQueue returns the keys of the versions that are pending in a group, in their order.
func (w *world) naiveQueue(group string) (keys []string) {
	var pending []*model.Reservation
	for _, v := range w.core.versions {
		if v.isPending() && v.r.Group() == group {
			pending = append(pending, v.r)
		}
	}
	slices.SortFunc(pending, w.core.scheduler.Compare)
	for _, r := range pending {
		keys = append(keys, r.Key.String())
	}
	return keys
}

// A state restricts the queue, and the positions remain those of the queue. An unknown group
// has no queue.
func TestQueueOfOneState(t *testing.T) {
	w := started()
	for i := range 3 {
		w.input(ask(fmt.Sprint("j", i), 1))
	}
	head, _ := w.core.Standing(ask("j0", 1).Key)
	if head.State != model.Leasing {
		t.Fatalf("the head is %s", head.State)
	}
	views, more := w.core.Queue(head.Group, model.Queued, nil, 1)
	if len(views) != 1 || views[0].Position != 2 || !more {
		t.Errorf("%+v, more: %v", views, more)
	}
	if views, more := w.core.Queue("unknown", model.StateUnset, nil, 1); len(views) != 0 || more {
		t.Errorf("the unknown group has %+v", views)
	}
}

// The pages of the list of queues together are the whole list, in order of the IDs. The depth
// is the sum of the list, on a leader and on a replica that has only followed.
func TestPagesAndDepthOfQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		w.successor(10)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			u := ask(fmt.Sprint("j", rapid.IntRange(0, 9).Draw(t, "job")), rapid.Int32Range(1, 3).Draw(t, "workers"))
			u.Spec.Constraints.SKU = fmt.Sprint("sku", rapid.IntRange(0, 7).Draw(t, "sku"))
			if rapid.Bool().Draw(t, "later") {
				u.Spec.NotBefore = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute)
			}
			w.input(u)
			if rapid.Bool().Draw(t, "cancel") {
				w.input(request.Cancel{Key: ask(fmt.Sprint("j", rapid.IntRange(0, 9).Draw(t, "job")), 1).Key})
			}
		}
		standby := New(w.core.config)
		for _, ref := range w.refs() {
			s := w.records[ref]
			standby.Step(w.now, model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})
		}
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "minutes")) * time.Minute)
		for range 3 { // a leader may need more than one step
			w.step(nil)
		}
		var want scheduler.Depth
		whole, err := w.allPending()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range whole {
			want.Groups++
			want.Reservations += g.Reservations
			want.Workers += g.Workers
		}
		for name, c := range map[string]*Core{"leader": w.core, "standby": standby} {
			if got, ready := c.Depth(w.now); got != want || !ready {
				t.Fatalf("the %s counts %+v (ready %v), want %+v", name, got, ready, want)
			}
		}
		var paged []PendingGroup
		for after, more := "", true; more; {
			var page []PendingGroup
			if page, more, err = w.core.Pending(after, rapid.IntRange(1, 3).Draw(t, "size")); err != nil {
				t.Fatal(err)
			}
			if paged = append(paged, page...); len(page) > 0 {
				after = page[len(page)-1].ID
			}
		}
		if fmt.Sprint(paged) != fmt.Sprint(whole) ||
			!slices.IsSortedFunc(paged, func(a, b PendingGroup) int { return strings.Compare(a.ID, b.ID) }) {
			t.Fatalf("the pages have %v, want %v", paged, whole)
		}
	})
}
