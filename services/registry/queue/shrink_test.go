package queue

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"berth.dev/pkg/model"
)

// After an upsert with STOP_HIGHEST, the stage has no more workers than its target size. The upsert
// stops only workers with higher indexes than those that stay and that it does not request. This holds
// over requeues, rounds, parts, growth, two names, ends and changes of leader.
func TestShrinkStopsTheHighest(t *testing.T) {
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
			u, drawn := model.Upsert{}, false
			what := rapid.IntRange(0, 15).Draw(t, "what")
			if what > 12 {
				u, drawn = w.drawUpsert(t, spec)
			}
			if !drawn {
				w.happen(t, max(1, min(what, 12)), i)
				continue
			}
			if rapid.IntRange(0, 3).Draw(t, "name") == 0 {
				u.Key.Name = "other"
			}
			u.Spec.TargetSize = max(u.Count, int32(len(u.Workers))) + rapid.Int32Range(0, 2).Draw(t, "more")
			u.Spec.Shrink = rapid.SampledFrom([]model.Shrink{model.ShrinkNever, model.ShrinkHighest}).Draw(t, "shrink")
			before := w.stageWorkers()
			answer, accepted := w.upsert(t, u)
			if accepted && answer.Change != model.Unchanged {
				w.shrunk(t, u, before)
			}
		}
	})
}

// worker identifies a worker of a stage.
type worker struct {
	name string
	id   model.WorkerID
}

// stageWorkers returns the workers of the stage that are requested and have not ended, or are queued
// again.
func (w *lives) stageWorkers() map[worker]bool {
	all := map[worker]bool{}
	for _, v := range w.core.versionsOf(stageKey(livesKey)) {
		for id := range w.core.counted(v, nil).All() {
			all[worker{v.r.Key.Name, id}] = true
		}
	}
	return all
}

// shrunk checks the workers of the stage after an upsert that was accepted.
func (w *lives) shrunk(t *rapid.T, u model.Upsert, before map[worker]bool) {
	after := w.stageWorkers()
	requested := func(k worker) bool {
		return k.name == u.Key.Name && (k.id.Index < u.Count || slices.ContainsFunc(u.Workers, func(id model.WorkerID) bool {
			return id.Index == k.id.Index
		}))
	}
	if u.Spec.Shrink == model.ShrinkHighest && len(after) > int(u.Spec.TargetSize) {
		t.Fatalf("%d workers are left of %d, the target size is %d: %v", len(after), len(before), u.Spec.TargetSize, after)
	}
	for k := range before {
		switch {
		case after[k] || requested(k):
			continue
		case u.Spec.Shrink == model.ShrinkNever && w.isStarted(k):
			t.Fatalf("%v was stopped without STOP_HIGHEST", k)
		case !w.isStarted(k): // a lower target size drops it, or the upsert replaces it
			continue
		}
		for other := range after {
			if !requested(other) && other.id.Compare(k.id) > 0 {
				t.Fatalf("%v was stopped, and %v stays", k, other)
			}
		}
		if len(after) < int(u.Spec.TargetSize) {
			t.Fatalf("%v was stopped, and only %d workers are left for the target size %d", k, len(after), u.Spec.TargetSize)
		}
	}
}

// isStarted reports whether a version that was dispatched has a worker.
func (w *lives) isStarted(k worker) bool {
	key := livesKey
	key.Name = k.name
	return slices.ContainsFunc(w.core.byKey[key], func(v *version) bool { return v.started() && v.r.Workers.Has(k.id) })
}
