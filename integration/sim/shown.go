package sim

import (
	"maps"
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
)

// shownStates are the states of workers whose numbers checkShown compares.
var shownStates = []model.WorkerState{model.WorkerAssigned, model.WorkerStarting, model.WorkerRunning}

// checkShown checks that the registry shows each reservation over all its versions: the states of the
// newest worker of each index, and the reservation among the queued ones while such a worker is queued.
func (w *World) checkShown() {
	registry := leadingNode[*queue.Core](w, model.ServiceRegistry)
	if registry == nil {
		return
	}
	type newest struct {
		number int32
		state  model.WorkerState // WorkerUnset while its version is queued
		uid    string
	}
	indexes := map[model.Key]map[int32]newest{}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		if r.State.Terminal() {
			continue
		}
		states := map[model.WorkerID]model.WorkerState{}
		task, _ := w.record(model.Ref{Kind: model.KindTaskChunk, ID: r.UID}).(*model.TaskChunk)
		for i := range size(task) {
			states[task.Workers[i].ID] = task.Workers[i].State
		}
		if indexes[r.Key] == nil {
			indexes[r.Key] = map[int32]newest{}
		}
		for id := range r.Workers.All() {
			if id.Number > indexes[r.Key][id.Index].number {
				indexes[r.Key][id.Index] = newest{id.Number, states[id], r.UID}
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(indexes), model.Key.Compare) {
		workers := indexes[key]
		view, _ := registry.driver.Core.Get(key)
		want, queued := map[string]int32{}, false
		for _, n := range workers {
			if n.state != model.WorkerUnset {
				want[n.state.String()]++
				continue
			}
			version, _ := registry.driver.Core.GetUID(n.uid)
			queued = queued || version.State == model.Queued
		}
		for _, state := range shownStates {
			if got := view.Counts[state.String()]; got != want[state.String()] {
				w.fail("at rest: %s shows %d workers %s, and %d are", key, got, state, want[state.String()])
			}
		}
		listed, _ := registry.driver.Core.List(queue.Filter{Job: key.Job, Stage: key.Stage, Name: key.Name,
			State: model.Queued}, model.Key{}, 1)
		if queued && len(listed) == 0 {
			w.fail("at rest: %s has queued workers, and is not among the queued reservations", key)
		}
	}
}
