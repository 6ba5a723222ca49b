package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// lives simulates the versions of one key with workers that only move forward. It remembers
// all versions and workers, also those whose records the registry has deleted.
type lives struct {
	*world
	versions map[string]*model.Reservation
	workers  map[string]*model.TaskChunk
}

var livesKey = model.Key{Job: "j", Stage: "s", Name: model.MainName}

// The view of a reservation is of the newest worker of each index: its counts are those of a
// model that never forgets a version, through requeues, parts, growth, cancels, deletions and
// changes of leader.
func TestViewIsOfTheNewestWorkers(t *testing.T) {
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
		for i := range rapid.IntRange(5, 60).Draw(t, "steps") {
			w.remember()
			w.act(t, spec, i)
			w.remember()
			w.compare(t)
		}
	})
}

func (w *lives) remember() {
	for ref, s := range w.records {
		switch record := s.record.(type) {
		case *model.Reservation:
			known := *record
			known.Epoch, known.Mod = s.create, s.mod
			w.versions[ref.ID] = &known
		case *model.TaskChunk:
			w.workers[ref.ID] = record
		}
	}
}

// act makes one random step.
func (w *lives) act(t *rapid.T, spec model.Spec, i int) {
	what := rapid.IntRange(0, 12).Draw(t, "what")
	if what == 0 {
		u := model.Upsert{Key: livesKey, Spec: spec, Count: rapid.Int32Range(1, 5).Draw(t, "count")}
		if rapid.IntRange(0, 4).Draw(t, "timeout") == 0 {
			u.Spec.QueueTimeout = time.Minute
		}
		w.input(u)
		return
	}
	w.happen(t, what, i)
}

// happen makes a random step that is no upsert: what is 1 to 12.
func (w *lives) happen(t *rapid.T, what, i int) {
	switch what {
	case 1:
		if rapid.Bool().Draw(t, "whole") {
			w.input(request.Cancel{Key: livesKey})
			return
		}
		workerID := model.WorkerID{Index: rapid.Int32Range(0, 4).Draw(t, "index"), Number: rapid.Int32Range(1, 4).Draw(t, "number")}
		w.input(request.CancelWorkers{Job: "j", Stage: "s", Workers: []model.WorkerID{workerID}})
		return
	case 2:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 700).Draw(t, "seconds")) * time.Second)
		w.step(nil)
		return
	case 3:
		w.successor(int64(100 + i))
		return
	}
	uids := slices.Sorted(maps.Keys(w.core.versions))
	if len(uids) > 0 {
		w.advance(t, w.core.versions[rapid.SampledFrom(uids).Draw(t, "uid")])
	}
}

// advance makes a step of one version: a grant, a part, a dispatch, a step of a worker, or the
// deletion of its task.
func (w *lives) advance(t *rapid.T, v *version) {
	header := model.TaskHeader{UID: v.uid, Complete: true}
	switch {
	case v.r == nil || v.r.State.Terminal():
		w.drop(v)
	case v.is(model.Queued) && len(v.lease) == 0:
		if slices.ContainsFunc(w.cycle.Candidates, func(c model.Candidate) bool { return c.UID == v.uid }) &&
			v.entry.InCycle && rapid.Bool().Draw(t, "refused") {
			fitting := rapid.IntRange(0, v.r.Workers.Len()-1).Draw(t, "fitting")
			w.step(w.outcome(args{bare: []string{v.uid + ":nofit"}, named: map[string]string{"fitting": fmt.Sprint(fitting)}}))
			return
		}
		if !v.isDelayed() {
			w.foreign(w.leaseOf(v.uid))
		}
	case v.header == nil && v.is(model.Queued):
		w.foreign(model.Changed{Ref: header.Ref(), Record: &header})
		chunk := &model.TaskChunk{UID: v.uid}
		for workerID := range v.r.Workers.All() {
			chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: workerID, State: model.WorkerAssigned,
				Since: model.InstantOf(w.now)})
		}
		w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk})
	case v.header == nil:
	default:
		w.advanceWorker(t, v, header)
	}
}

// advanceWorker moves one worker of a version, and ends its task with its last worker.
func (w *lives) advanceWorker(t *rapid.T, v *version, header model.TaskHeader) {
	chunk := *v.tasks[0]
	chunk.Workers = slices.Clone(chunk.Workers)
	at := &chunk.Workers[rapid.IntRange(0, len(chunk.Workers)-1).Draw(t, "worker")]
	if !at.State.Terminal() {
		states := []model.WorkerState{model.WorkerStarting, model.WorkerRunning, model.WorkerCompleted, model.WorkerFailed,
			model.WorkerLost, model.WorkerEvicted}
		next := rapid.SampledFrom(states).Draw(t, "state")
		if next > at.State {
			at.State, at.Since = next, model.InstantOf(w.now)
		}
		at.Requeue = next == model.WorkerFailed && v.r.Spec.Start != model.StartTogether && v.is(model.Active) &&
			!v.r.Unwanted.Has(at.ID) && rapid.Bool().Draw(t, "requeue")
		if next == model.WorkerFailed && !at.Requeue && rapid.Bool().Draw(t, "gave up") {
			at.Reason = fault.ReasonRoundsExhausted
		}
		w.foreign(model.Changed{Ref: chunk.Ref(), Record: &chunk})
	}
	if !slices.ContainsFunc(chunk.Workers, func(w model.TaskWorker) bool { return !w.State.Terminal() }) {
		header.Ended = true
		header.Withdrawn = v.r.Spec.Start == model.StartTogether && v.is(model.Active) && rapid.Bool().Draw(t, "withdrawn")
		w.foreign(model.Changed{Ref: header.Ref(), Record: &header})
		w.foreign(model.Changed{Ref: model.Ref{Kind: model.KindLeaseChunk, ID: v.uid}})
	}
}

// drop deletes the task of an ended version.
func (w *lives) drop(v *version) {
	for _, kind := range []model.Kind{model.KindTaskChunk, model.KindTaskHeader, model.KindLeaseChunk} {
		if ref := (model.Ref{Kind: kind, ID: v.uid}); w.records[ref].record != nil {
			w.foreign(model.Changed{Ref: ref})
		}
	}
}

// compare compares the view of the key with the model.
func (w *lives) compare(t *rapid.T) {
	view, ok := w.core.Get(livesKey)
	if !ok {
		return
	}
	r := w.core.reservationOf(livesKey)
	newest, states := map[int32]int32{}, map[int32]string{}
	for _, uid := range slices.Sorted(maps.Keys(w.versions)) {
		v := w.versions[uid]
		if w.first(v) != w.first(r.shown.r) || !w.counts(v, view) {
			continue
		}
		for workerID := range v.Workers.All() {
			if workerID.Number <= newest[workerID.Index] {
				continue
			}
			newest[workerID.Index], states[workerID.Index] = workerID.Number, ""
			chunk := w.workers[uid]
			if v.State == model.Queued && chunk == nil {
				states[workerID.Index] = "QUEUED"
			}
			for i := 0; chunk != nil && i < len(chunk.Workers); i++ {
				if chunk.Workers[i].ID == workerID {
					states[workerID.Index] = chunk.Workers[i].State.String()
				}
			}
		}
	}
	want := map[string]int32{}
	for _, state := range states {
		if state != "" && (state != "QUEUED" || len(r.members) > 1 || len(r.past) > 0) {
			want[state]++
		}
	}
	got := map[string]int32{}
	maps.Copy(got, view.Counts)
	if diff := gocmp.Diff(want, got); diff != "" || view.Reservation.Workers.Len() != len(newest) {
		t.Fatalf("%d workers of %s, want %d; -want +got:\n%s", view.Reservation.Workers.Len(), view.State, len(newest), diff)
	}
	w.agrees(t, view)
}

// agrees checks that state, message, ends, lists and explanation agree with the counts.
func (w *lives) agrees(t *rapid.T, view View) {
	queued := view.Counts["QUEUED"]
	listed, _ := w.core.List(Filter{State: model.Queued}, model.Key{}, 10)
	leasing, _ := w.core.List(Filter{State: model.Leasing}, model.Key{}, 10)
	assigning, _ := w.core.List(Filter{State: model.Assigning}, model.Key{}, 10)
	if in := len(listed)+len(leasing)+len(assigning) > 0; queued > 0 && !in {
		t.Fatalf("%d workers are queued, and no list has them", queued)
	}
	standing, _ := w.core.Standing(livesKey)
	if standing.Position != view.Position || standing.Reason != view.Reason {
		t.Fatalf("explained with position %d and %s, shown with %d and %s", standing.Position, standing.Reason, view.Position,
			view.Reason)
	}
	bad, ended := view.Counts["FAILED"]+view.Counts["LOST"], map[string]int32{}
	if view.State == model.Completed && (view.Message != "") != (bad > 0) {
		t.Fatalf("%d failed, and the message is %q", bad, view.Message)
	}
	for _, e := range view.Ends {
		ended[e.State.String()] += int32(e.Workers.Len()) + e.More
		if e.More > 0 || !e.Workers.SubsetOf(view.Reservation.Workers) {
			t.Fatalf("%s of %s is not of the newest workers %s", showWorkers(e.Workers), e.State,
				showWorkers(view.Reservation.Workers))
		}
	}
	if view.State.Terminal() && !maps.Equal(ended, view.Counts) && len(ended)+len(view.Counts) > 0 {
		t.Fatalf("ended %v, counts %v", ended, view.Counts)
	}
}

func (w *lives) first(r *model.Reservation) string {
	for r.First == "" && w.versions[r.Parent] != nil {
		r = w.versions[r.Parent]
	}
	if r.First != "" {
		return r.First
	}
	return r.UID
}

// counts reports whether the workers of a version are workers of the reservation.
func (w *lives) counts(v *model.Reservation, view View) bool {
	if v.State == model.Replaced {
		return false
	}
	unused := w.workers[v.UID] == nil && v.Origin == model.OriginRequested && v.Round == 0 &&
		(v.State == model.Cancelled || v.State == model.Expired)
	isParent := w.core.children[v.UID] > 0
	return !unused || isParent || view.Reservation.UID == v.UID
}

// A message says why a worker ended: its exit code says nothing if it was stopped.
func TestEndText(t *testing.T) {
	for want, w := range map[string]model.TaskWorker{
		"exit code 3":       {State: model.WorkerFailed, Reason: fault.ReasonExited, ExitCode: new(int32(3))},
		"completed":         {State: model.WorkerCompleted, ExitCode: new(int32(0))},
		"EXECUTOR_DRAINING": {State: model.WorkerEvicted, Reason: fault.ReasonExecutorDraining, ExitCode: new(int32(143))},
		"EXECUTOR_LOST":     {State: model.WorkerLost, Reason: fault.ReasonExecutorLost},
		"no memory":         {State: model.WorkerFailed, LastError: model.Intern("no memory"), ExitCode: new(int32(137))},
	} {
		if got := endText(w); got != want {
			t.Errorf("%s %s: %q, want %q", w.State, w.Reason, got, want)
		}
	}
}

// A version ends without a look at the other versions: a reservation whose workers are restarted again
// and again has tens of thousands, and hundreds of them end in a second.
func TestEndOfAVersionReadsNoOthers(t *testing.T) {
	allocations := func(others int) float64 {
		w := newWorld(Config{})
		w.step(model.Elected{Term: 101, Revision: 101})
		var changes []model.Changed
		numbers := model.WorkerSet{{First: 0, Last: int32(others), Number: 1}}
		changes = append(changes, model.Changed{Ref: model.Ref{Kind: model.KindStage, Key: stageKey(livesKey)},
			Record: &model.Stage{Job: livesKey.Job, Stage: livesKey.Stage, Numbers: numbers}})
		for i := range int32(others) + 1 {
			r := &model.Reservation{UID: fmt.Sprintf("v-%d", i), Key: livesKey, State: model.Active, First: "v-0",
				Workers: model.WorkerSet{{First: i, Last: i, Number: 1}}, Epoch: int64(i) + 1}
			failed := model.TaskWorker{ID: model.WorkerID{Index: i, Number: 1}, State: model.WorkerFailed,
				Since: model.InstantOf(w.core.now)}
			changes = append(changes, model.Changed{Ref: r.Ref(), Record: r},
				model.Changed{Ref: model.Ref{Kind: model.KindTaskHeader, ID: r.UID},
					Record: &model.TaskHeader{UID: r.UID, Key: livesKey, Complete: true}},
				model.Changed{Ref: model.Ref{Kind: model.KindTaskChunk, ID: r.UID},
					Record: &model.TaskChunk{UID: r.UID, Workers: []model.TaskWorker{failed}}})
		}
		w.foreign(changes...)
		v := w.core.versions["v-0"]
		if ends := w.core.endsOf(v); ends == nil || ends.Cause.ID != v.r.Workers.List()[0] {
			t.Fatalf("the end of the version is %+v", ends)
		}
		return testing.AllocsPerRun(10, func() { w.core.endsOf(v) })
	}
	if few, many := allocations(3), allocations(300); many > few {
		t.Errorf("%v allocations with 300 other versions, and %v with 3", many, few)
	}
}
