package sim

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// moves knows which worker indexes ever failed, as opposed to those whose workers only moved because
// of drains or lost executors.
type moves struct {
	keys   map[string]model.Key
	chunks map[model.Ref]*model.TaskChunk
	// failed has the indexes whose workers failed, by reservation. The index anyOf stands for the
	// whole reservation.
	failed map[model.Key]map[int32]bool
}

const anyOf = int32(-1)

func newMoves() moves {
	return moves{keys: map[string]model.Key{}, chunks: map[model.Ref]*model.TaskChunk{},
		failed: map[model.Key]map[int32]bool{}}
}

// observeEnds processes a change of the workers of a task. It checks that no worker is given up
// whose index only moved.
func (w *World) observeEnds(ref model.Ref, c store.Change) {
	before := w.moves.chunks[ref]
	if c.Deleted {
		delete(w.moves.chunks, ref)
		return
	}
	chunk, key := w.decode(ref, c).(*model.TaskChunk), w.moves.keys[ref.ID]
	w.moves.chunks[ref] = chunk
	if w.moves.failed[key] == nil {
		w.moves.failed[key] = map[int32]bool{}
	}
	failed := w.moves.failed[key]
	var gaveUp []model.TaskWorker
	for i := range size(chunk) {
		var was model.TaskWorker
		if i < size(before) { // else the worker ends when its task is created
			was = before.Workers[i]
		}
		is := chunk.Workers[i]
		switch {
		case was.State.Terminal() || !is.State.Terminal():
		case !moved(was, is):
			failed[is.ID.Index] = failed[is.ID.Index] || is.Reason != fault.ReasonCancelled
			failed[anyOf] = failed[anyOf] || is.Reason != fault.ReasonCancelled && is.Reason != fault.ReasonNotTogether
		case is.Reason == fault.ReasonRoundsExhausted:
			gaveUp = append(gaveUp, is)
		}
	}
	for _, tw := range gaveUp {
		if !failed[tw.ID.Index] {
			w.fail("worker %s of %s (%s) was given up although its executors were drained or LOST, and none of its workers failed",
				tw.ID, key, ref.ID)
		}
	}
}

// moved reports whether a worker ended because, or while, its executor was drained or LOST, or stopped it
// without a request. One that no attempt could start did not move. A cell also loses workers that it
// cannot start.
func moved(was, is model.TaskWorker) bool {
	switch is.State {
	case model.WorkerLost:
		unanswered := was.State <= model.WorkerAssigned && is.Unconfirmed
		return was.Reason != fault.ReasonAttemptsExhausted && was.Reason != fault.ReasonExecutorRefuses && !unanswered
	case model.WorkerEvicted:
		return was.State < model.WorkerEvict || was.Reason == fault.ReasonExecutorDraining
	case model.WorkerFailed:
		return is.Reason == fault.ReasonExecutorDraining
	}
	return false
}

// observeRounds processes a change of a reservation. It checks that a replacement of a worker that
// only moved does not wait, and that no gang fails whose workers only moved.
func (w *World) observeRounds(ref model.Ref, c store.Change) {
	_, known := w.moves.keys[ref.ID]
	w.moves.keys[ref.ID] = ref.Key
	if c.Deleted {
		return
	}
	failed := w.moves.failed[ref.Key]
	if known && failed[anyOf] {
		return
	}
	r, decoded := w.decode(ref, c).(*model.Reservation)
	if !decoded {
		return
	}
	queuedAgain := r.Origin == model.OriginRequeue || r.Round > 0
	index := anyOf
	if r.Origin == model.OriginRequeue {
		index = r.Workers[0].First
	}
	if !known && queuedAgain && !failed[index] && r.NotBefore.After(r.CreatedAt) {
		w.fail("%s (%s) waits until %v although its executors were drained or LOST, and none of its workers failed", r.Key,
			r.UID, r.NotBefore)
	}
	if r.State == model.Failed && r.Reason == fault.ReasonRoundsExhausted && queuedAgain && !failed[anyOf] {
		w.fail("%s (%s) failed although its executors were drained or LOST, and none of its workers failed", r.Key, r.UID)
	}
}
