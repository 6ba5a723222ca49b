package queue

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// A loop that compares what a reservation shows with what it wants, and applies the difference,
// ends with the first apply: an accepted upsert shows the workers that it was sent, and its repeat is
// UNCHANGED. This holds for counts and for lists of workers with any numbers, over requeues, rounds, parts, growth,
// ends, deletions and changes of leader. Until the next request, what was requested stays requested.
func TestAnUpsertIsShownAndItsRepeatIsUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := lives{newWorld(Config{}), map[string]*model.Reservation{}, map[string]*model.TaskChunk{}}
		w.successor(10)
		spec := model.Spec{
			Restart: rapid.SampledFrom([]model.Restart{model.RestartNever, model.RestartAlways}).Draw(t, "restart"),
			Batch:   rapid.SampledFrom([]model.Batch{model.BatchStrict, model.BatchBestEffort}).Draw(t, "batch"),
			Start:   rapid.SampledFrom([]model.Start{model.StartUnset, model.StartTogether}).Draw(t, "start"),
		}
		if spec.Start == model.StartTogether {
			spec.Batch = model.BatchStrict
		}
		var last wantedWorkers // the last request, if it is for other workers than those shown
		for i := range rapid.IntRange(5, 60).Draw(t, "steps") {
			u, drawn := model.Upsert{}, false
			what := rapid.IntRange(0, 15).Draw(t, "what")
			if what > 12 {
				u, drawn = w.drawUpsert(t, spec)
			}
			if drawn {
				if answer, accepted := w.upsert(t, u); accepted {
					w.showsRequest(t, u, answer)
					last = w.requested()
				}
				continue
			}
			w.happen(t, max(1, min(what, 12)), i)
			if len(w.core.living(livesKey).all()) == 0 {
				last = wantedWorkers{}
			}
			if got := w.requested(); last.isSet() && !got.equal(last) {
				t.Fatalf("count=%d workers=%s was requested, and count=%d workers=%s is", last.count,
					showWorkers(last.workers), got.count, showWorkers(got.workers))
			}
		}
	})
}

// drawUpsert returns a request for a count, or for a list that has some of the shown workers, some with
// their numbers, and others. Some lists name workers without numbers.
func (w *lives) drawUpsert(t *rapid.T, spec model.Spec) (model.Upsert, bool) {
	u := model.Upsert{Key: livesKey, Spec: spec}
	u.Spec.Task.Command = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "command")
	if rapid.IntRange(0, 2).Draw(t, "form") == 0 {
		u.Count = rapid.Int32Range(1, 5).Draw(t, "count")
		return u, true
	}
	var shown model.WorkerSet
	if view, ok := w.core.Get(livesKey); ok {
		shown = view.Reservation.Workers
	}
	used := w.core.stage(livesKey).Numbers
	forms := []string{"shown", "shown", "shown", "none", "next", "earlier"}
	if rapid.IntRange(0, 2).Draw(t, "unnumbered") == 0 {
		forms = []string{"unnumbered", "unnumbered", "none", "shown"}
	}
	for index := range int32(5) {
		number, _ := shown.Number(index)
		highest, _ := used.Number(index)
		switch rapid.SampledFrom(forms).Draw(t, "worker") {
		case "none":
			continue
		case "unnumbered":
			u.Workers = append(u.Workers, model.WorkerID{Index: index})
			continue
		case "next":
			number = highest + 1
		case "earlier":
			number--
		}
		if number > 0 {
			u.Workers = append(u.Workers, model.WorkerID{Index: index, Number: number})
		}
	}
	return u, len(u.Workers) > 0
}

// upsert returns the answer to an upsert, and whether it was accepted.
func (w *lives) upsert(t *rapid.T, u model.Upsert) (Upserted, bool) {
	for _, action := range w.input(u) {
		reply, ok := action.(model.Reply)
		if !ok || reply.Token != w.token {
			continue
		}
		upserted, ok := reply.Value.(Upserted)
		return upserted, ok
	}
	t.Fatalf("no reply to %+v", u)
	return Upserted{}, false
}

// requested returns the requested workers of a living reservation that are not those of the reservation.
func (w *lives) requested() wantedWorkers {
	view, ok := w.core.Get(livesKey)
	if !ok || view.State.Terminal() || view.State == model.Cancelling {
		return wantedWorkers{}
	}
	return wantedWorkers{view.RequestedCount, view.RequestedWorkers}
}

// showsRequest checks that the reservation is shown with the workers of an upsert, and that its repeat is
// UNCHANGED.
func (w *lives) showsRequest(t *rapid.T, u model.Upsert, answer Upserted) {
	view, ok := w.core.Get(livesKey)
	if !ok {
		t.Fatalf("%s: there is no reservation", answer.Change)
	}
	if view.State.Terminal() {
		return
	}
	sent := fmt.Sprintf("count=%d workers=%s", u.Count, showWorkers(model.WorkerSetOf(u.Workers)))
	shown := fmt.Sprintf("%s with requested count=%d workers=%s", showWorkers(view.Reservation.Workers),
		view.RequestedCount, showWorkers(view.RequestedWorkers))
	switch requests := view.RequestedCount > 0 || len(view.RequestedWorkers) > 0; {
	case !requests && !request.SameWorkers(u, view.Reservation.Workers),
		requests && (view.RequestedCount != u.Count || !view.RequestedWorkers.Equal(model.WorkerSetOf(u.Workers))):
		t.Fatalf("%s of %s is shown as %s", answer.Change, sent, shown)
	case view.Reservation.Spec.Task.Command != u.Spec.Task.Command:
		t.Fatalf("%s of command %s is shown as %s", answer.Change, u.Spec.Task.Command, view.Reservation.Spec.Task.Command)
	}
	repeat, accepted := w.upsert(t, u)
	if !accepted || repeat.Change != model.Unchanged {
		t.Fatalf("the repeat of %s, which is shown as %s, is %s (accepted: %t)", sent, shown, repeat.Change, accepted)
	}
	for _, a := range []Upserted{answer, repeat} {
		if a.Change == model.Created || a.Change == model.ChangeReplaced {
			continue // it shows what it queued
		}
		if !a.Reservation.Workers.Equal(view.Reservation.Workers) || !maps.Equal(a.Counts, view.Counts) {
			t.Fatalf("the answer %s has the workers %s, %v, and a read %s, %v", a.Change,
				showWorkers(a.Reservation.Workers), a.Counts, showWorkers(view.Reservation.Workers), view.Counts)
		}
	}
}
