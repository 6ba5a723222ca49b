package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// stage is the phase of a reservation when the next upsert arrives.
type stage int

const (
	isQueued stage = iota
	isLeased
	isActive
)

// Promise 1, every row of the table: the change that an upsert makes after a first upsert
// of three workers. The change depends on how the two upserts differ, and on the phase of
// the first reservation.
func TestPromise1EveryRowOfTheTable(t *testing.T) {
	two, three := int64(2), int64(3)
	workers := func(list ...model.WorkerID) func(*model.Upsert) {
		return func(u *model.Upsert) { u.Count, u.Workers = 0, list }
	}
	count := func(n int32) func(*model.Upsert) { return func(u *model.Upsert) { u.Count = n } }
	const (
		same = "same place"
		tail = "tail"
		none = "" // the upsert leaves the first reservation unchanged
	)
	tests := []struct {
		name    string
		at      stage
		change  func(*model.Upsert)
		want    model.Change
		place   string
		workers string // of the version in the reply
	}{
		{"again", isQueued, func(*model.Upsert) {}, model.Unchanged, none, "[0-2.1]"},
		{"by name", isQueued, workers(model.WorkerID{Number: 1}, model.WorkerID{Index: 1, Number: 1},
			model.WorkerID{Index: 2, Number: 1}), model.Unchanged, none, "[0-2.1]"},
		{"other labels", isQueued, func(u *model.Upsert) { u.Spec.Labels = map[string]string{"a": "b"} }, model.Updated,
			same, "[0-2.1]"},
		{"defaults spelt out", isQueued, func(u *model.Upsert) {
			u.Spec.Start, u.Spec.OnFailure, u.Spec.MaxAttempts = model.StartProgressive, model.OnFailureRequeue,
				model.DefaultAttempts
		}, model.Unchanged, none, "[0-2.1]"},
		{"another class", isQueued, func(u *model.Upsert) { u.Spec.Priority.Class = model.ClassReplace }, model.Reordered,
			same, "[0-2.1]"},
		{"another tier", isQueued, func(u *model.Upsert) { u.Spec.Priority.Tier = 4 }, model.Reordered, same, "[0-2.1]"},
		{"another order", isQueued, func(u *model.Upsert) { u.Spec.Priority.Order = &two }, model.Reordered, same, "[0-2.1]"},
		{"another task", isQueued, func(u *model.Upsert) { u.Spec.Task.Command = "other" }, model.ChangeReplaced, same,
			"[0-2.1]"},
		{"a volume", isQueued, func(u *model.Upsert) { u.Spec.Volume = &model.VolumeRequest{Resource: "slots"} },
			model.ChangeReplaced, same, "[0-2.1]"},
		{"another batch", isQueued, func(u *model.Upsert) { u.Spec.Batch = model.BatchBestEffort }, model.ChangeReplaced,
			same, "[0-2.1]"},
		{"another start", isQueued, func(u *model.Upsert) { u.Spec.Start = model.StartTogether }, model.ChangeReplaced, same,
			"[0-2.1]"},
		{"another failure", isQueued, func(u *model.Upsert) { u.Spec.OnFailure = model.OnFailureNotify },
			model.ChangeReplaced, same, "[0-2.1]"},
		{"more attempts", isQueued, func(u *model.Upsert) { u.Spec.MaxAttempts = 9 }, model.ChangeReplaced, same, "[0-2.1]"},
		{"requeues by order", isQueued, func(u *model.Upsert) { u.Spec.Requeue = model.RequeueByOrder }, model.ChangeReplaced,
			same, "[0-2.1]"},
		{"a timeout", isQueued, func(u *model.Upsert) { u.Spec.QueueTimeout = time.Hour }, model.ChangeReplaced, same,
			"[0-2.1]"},
		{"fewer", isQueued, count(2), model.ChangeReplaced, same, "[0-1.1]"},
		{"some of them", isQueued, workers(model.WorkerID{Index: 2, Number: 1}), model.ChangeReplaced, same, "[2.1]"},
		{"fewer and another task", isQueued, func(u *model.Upsert) { u.Count, u.Spec.Task.Command = 1, "other" },
			model.ChangeReplaced, same, "[0.1]"},
		{"task and priority", isQueued, func(u *model.Upsert) {
			u.Spec.Task.Command, u.Spec.Priority.Order = "other",
				&three
		}, model.ChangeReplaced, same, "[0-2.1]"},
		{"more", isQueued, count(4), model.ChangeReplaced, tail, "[0-3.1]"},
		{"others", isQueued, workers(model.WorkerID{Index: 7, Number: 1}), model.ChangeReplaced, tail, "[7.1]"},
		{"the next number", isQueued, workers(model.WorkerID{Number: 2}), model.ChangeReplaced, tail, "[0.2]"},
		{"another SKU", isQueued, func(u *model.Upsert) { u.Spec.Constraints.SKU = "x" }, model.ChangeReplaced, tail,
			"[0-2.1]"},
		{"a host to avoid", isQueued, func(u *model.Upsert) { u.Spec.Constraints.Avoid = []string{"h"} },
			model.ChangeReplaced, tail, "[0-2.1]"},

		{"again", isLeased, func(*model.Upsert) {}, model.Unchanged, none, "[0-2.1]"},
		{"another order", isLeased, func(u *model.Upsert) { u.Spec.Priority.Order = &two }, model.Reordered, same, "[0-2.1]"},
		{"another task", isLeased, func(u *model.Upsert) { u.Spec.Task.Command = "other" }, model.ChangeReplaced, same,
			"[0-2.1]"},
		{"more", isLeased, count(4), model.ChangeReplaced, tail, "[0-3.1]"},

		{"again", isActive, func(*model.Upsert) {}, model.Unchanged, none, "[0-2.1]"},
		{"another order", isActive, func(u *model.Upsert) { u.Spec.Priority.Order = &two }, model.Updated, same, "[0-2.1]"},
		{"other labels", isActive, func(u *model.Upsert) { u.Spec.Labels = map[string]string{"a": "b"} }, model.Updated,
			same, "[0-2.1]"},
		{"another task", isActive, func(u *model.Upsert) { u.Spec.Task.Command = "other" }, model.Updated, same, "[0-2.1]"},
		{"another policy", isActive, func(u *model.Upsert) { u.Spec.Restart = model.RestartAlways }, model.Updated, same,
			"[0-2.1]"},
		{"another SKU", isActive, func(u *model.Upsert) { u.Spec.Constraints.SKU = "x" }, model.Updated, same, "[0-2.1]"},
		{"a hold", isActive, func(u *model.Upsert) { u.Spec.Hold = true }, model.Updated, same, "[0-2.1]"},
		{"another target", isActive, func(u *model.Upsert) { u.Spec.TargetSize = 7 }, model.Updated, same, "[0-2.1]"},
		{"fewer", isActive, count(1), model.Updated, same, "[0-2.1]"},
		{"some of them", isActive, workers(model.WorkerID{Index: 2, Number: 1}), model.Updated, same, "[0-2.1]"},
		{"requeues by order", isActive, func(u *model.Upsert) { u.Spec.Requeue = model.RequeueByOrder }, model.Updated, same,
			"[0-2.1]"},
		{"more", isActive, count(5), model.ChangeReplaced, tail, "[3-4.1]"},
		{"the next number", isActive, workers(model.WorkerID{Index: 1, Number: 2}), model.ChangeReplaced, tail, "[1.2]"},
	}
	for _, name := range []string{model.MainName, "replace-3-2"} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/%d/%s", name, tt.at, tt.name), func(t *testing.T) {
				w := started()
				u := ask("j", 3)
				u.Key.Name = name
				beside := ask("j", 3)
				beside.Key.Name = "beside"
				beside.Key.Stage = "other"
				w.input(u)
				w.input(beside)
				w.bring("a-1", tt.at)
				first, _ := w.core.GetUID("a-1")
				other, _ := w.core.GetUID("a-2")

				next := u
				next.Spec.Constraints = u.Spec.Constraints
				tt.change(&next)
				reply := actionsOf[model.Reply](w.input(next))[0]
				if reply.Err != nil {
					t.Fatal(reply.Err)
				}
				got := reply.Value.(Upserted)
				if got.Change != tt.want || showWorkers(got.Reservation.Workers) != tt.workers {
					t.Errorf("%s %s, want %s %s", got.Change, showWorkers(got.Reservation.Workers), tt.want, tt.workers)
				}
				r, old := got.Reservation, first.Reservation
				switch tt.place {
				case none:
					if r != old {
						t.Errorf("the record moved: %+v", r)
					}
				case same:
					if r.Place != old.Place || w.core.placeEpoch(r) != w.core.placeEpoch(old) {
						t.Errorf("at place %d of %d, not %d of %d", r.Place, w.core.placeEpoch(r), old.Place, w.core.placeEpoch(old))
					}
				case tail:
					if r.Place <= other.Reservation.Place || r.PlaceEpoch != 0 {
						t.Errorf("at place %d of %d, not the tail", r.Place, r.PlaceEpoch)
					}
				}
				if replaced := r.UID != old.UID; replaced != (tt.want == model.ChangeReplaced) {
					t.Errorf("%s is now %s", old.UID, r.UID)
				}
				ended, _ := w.core.GetUID("a-1")
				if ends := tt.want == model.ChangeReplaced && tt.at != isActive; ends != (ended.State == model.Replaced) {
					t.Errorf("the first is %s", ended.State)
				}
				if now, _ := w.core.GetUID("a-2"); now.Reservation != other.Reservation {
					t.Errorf("another reservation of the queue changed")
				}
				w.converges(t, next)
			})
		}
	}
}

// converges checks that an upsert which was accepted is the latest request: reads show it, and a
// repeat under any leader changes nothing.
func (w *world) converges(t *testing.T, u model.Upsert) {
	t.Helper()
	w.successor(20)
	for range 2 {
		reply := actionsOf[model.Reply](w.input(u))[0]
		if reply.Err != nil || reply.Value.(Upserted).Change != model.Unchanged {
			t.Errorf("the repeat: %+v", reply)
		}
	}
	view, _ := w.core.Get(u.Key)
	u = request.WithDefaults(u)
	if differs := request.Differences(&u.Spec, &view.Reservation.Spec) &^ request.FieldTargetSize; differs != 0 ||
		request.LatestTarget(view.Reservation) != u.Spec.TargetSize {
		t.Errorf("the reservation is shown with other fields: %v, target %d", differs.Names(),
			request.LatestTarget(view.Reservation))
	}
}

// bring moves a version to the given phase.
func (w *world) bring(uid string, to stage) {
	if to >= isLeased {
		w.foreign(w.leaseOf(uid))
	}
	if to >= isActive {
		h := &model.TaskHeader{UID: uid, Complete: true}
		w.foreign(model.Changed{Ref: h.Ref(), Record: h})
	}
}

// A body that is sent a thousand times, to any replica at any time, changes nothing. This
// holds for a pending reservation, a running one, and one with a requeue or a part.
func TestPromise1SameBodyChangesNothing(t *testing.T) {
	plain := func(w *world) model.Upsert {
		u := ask("j", 4)
		w.input(u)
		return u
	}
	tests := map[string]func(w *world) model.Upsert{
		"queued": plain,
		"active": func(w *world) model.Upsert {
			u := plain(w)
			w.bring("a-1", isActive)
			return u
		},
		"requeued": func(w *world) model.Upsert {
			u := plain(w)
			w.bring("a-1", isActive)
			w.giveUp("a-1", 1)
			return u
		},
		"requeued, and the rest is completed": func(w *world) model.Upsert {
			u := plain(w)
			w.bring("a-1", isActive)
			w.giveUp("a-1", 1)
			h := &model.TaskHeader{UID: "a-1", Complete: true, Ended: true}
			w.foreign(model.Changed{Ref: h.Ref(), Record: h})
			w.foreign(model.Changed{Ref: w.leaseOf("a-1").Ref})
			return u
		},
		"parted": func(w *world) model.Upsert {
			u := ask("j", 4)
			u.Spec.Batch = model.BatchBestEffort
			w.input(u)
			w.step(scheduler.CycleDone{Cycle: w.cycle.Number, Outcomes: []model.Outcome{{UID: "a-1", Result: model.NoFit,
				Fitting: 1}}})
			return u
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			w := started()
			u := prepare(w)
			w.input(ask("behind", 1))
			before := w.durable()
			for i := range 1000 {
				if i%100 == 50 { // another replica whose clock differs
					w.now = w.now.Add(time.Duration(i%7-3) * 30 * time.Minute)
					w.successor(int64(20 + i))
				}
				reply := actionsOf[model.Reply](w.input(u))[0]
				if reply.Err != nil || reply.Value.(Upserted).Change != model.Unchanged {
					t.Fatalf("the %dth time: %+v", i, reply)
				}
			}
			if after := w.durable(); !slices.Equal(before, after) {
				t.Errorf("stored were\n%v\nand are\n%v", before, after)
			}
		})
	}
}

// durable returns all records in the store.
func (w *world) durable() []string {
	var all []string
	for _, ref := range w.refs() {
		all = append(all, fmt.Sprintf("%v %d %+v", ref, w.records[ref].mod, w.records[ref].record))
	}
	return all
}

// giveUp ends all four workers of a version and returns one of them to the queue.
func (w *world) giveUp(uid string, index int32) {
	chunk := &model.TaskChunk{UID: uid}
	for i := range int32(4) {
		chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: model.WorkerID{Index: i, Number: 1},
			State: model.WorkerCompleted})
	}
	chunk.Workers[index].State, chunk.Workers[index].Requeue = model.WorkerFailed, true
	w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk})
}

// The reply shows the reservation as it is stored. It shows QUEUED even if a later request
// in the same transaction replaces that version.
func TestUpsertedShowsTheStoredRecord(t *testing.T) {
	c := New(Config{})
	c.Step(time.Now(), model.Elected{Term: 2, Revision: 2})
	c.Step(time.Now(), model.Committed{Effects: 1, Revision: 3}) // commits the mark that the registry is ready
	for i, count := range []int32{2, 3} {
		c.Step(time.Now(), model.Input{Token: uint64(i), Request: ask("j", count)})
	}
	var shown []View
	for _, revision := range []int64{4, 5} {
		for _, reply := range actionsOf[model.Reply](c.Step(time.Now(), model.Committed{Effects: 1, Revision: revision})) {
			shown = append(shown, reply.Value.(Upserted).View)
		}
	}
	if len(shown) != 2 {
		t.Fatalf("answered %+v", shown)
	}
	for i, want := range []struct{ position, workers int }{{0, 2}, {1, 3}} {
		if got := shown[i]; got.State != model.Queued || got.Reservation.State != model.Queued ||
			got.Position != want.position || got.Reservation.Workers.Len() != want.workers {
			t.Errorf("answer %d: %+v of %d workers", i, got, got.Reservation.Workers.Len())
		}
	}
}
