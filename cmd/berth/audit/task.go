package audit

import (
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// setHeader applies the change of a task's header. A version that has a task header is not
// queued.
func (a *Auditor) setHeader(ref model.Ref, next *model.TaskHeader) {
	v := a.touch(ref.ID)
	prev := v.header
	a.leaveQueue(v)
	v.header = next
	if next == nil {
		return
	}
	switch v.key {
	case model.Key{}:
		v.key = next.Key
	case next.Key:
	default:
		a.violate(RuleImmutable, "%s has a task for %s", v, next.Key)
	}
	if v.leased == 0 {
		v.leased = next.Lease
	}
	if prev == nil {
		a.step.grown = append(a.step.grown, v)
	}
	if next.Complete && !v.complete {
		v.complete = true
		a.step.completed = append(a.step.completed, v)
	}
}

// observeGivenUp notes the workers of a chunk that were given up.
func (v *version) observeGivenUp(chunk *model.TaskChunk) {
	for i := range chunk.Workers {
		if chunk.Workers[i].Unconfirmed {
			if v.givenUp == nil {
				v.givenUp = map[model.WorkerID]bool{}
			}
			v.givenUp[chunk.Workers[i].ID] = true
		}
	}
}

// setTask applies the change of one chunk of a task.
func (a *Auditor) setTask(ref model.Ref, next *model.TaskChunk) {
	v := a.touch(ref.ID)
	prev := v.tasks[ref.Chunk]
	if next == nil {
		delete(v.tasks, ref.Chunk)
	} else {
		v.tasks[ref.Chunk] = next
		v.observeGivenUp(next)
	}
	switch {
	case prev == nil && next != nil:
		a.step.grown = append(a.step.grown, v)
		for i := range next.Workers {
			a.assign(v, &next.Workers[i])
		}
	case prev != nil && next == nil:
		a.deleted(v, prev)
	case prev != nil && sameWorkers(prev, next):
		for i := range next.Workers {
			a.move(v, &prev.Workers[i], &next.Workers[i])
		}
	case prev != nil:
		a.violate(RulePlacement, "%s: chunk %d of its task changed its workers or their executors", v, ref.Chunk)
		for i := range prev.Workers {
			a.end(v, &prev.Workers[i])
		}
		for i := range next.Workers {
			a.begin(v, &next.Workers[i])
		}
	}
}

func sameWorkers(x, y *model.TaskChunk) bool {
	return slices.EqualFunc(x.Workers, y.Workers, func(x, y model.TaskWorker) bool {
		return x.ID == y.ID && x.Ordinal == y.Ordinal
	})
}

// assign records and checks a new assignment. The assignment must be on the leased executor,
// and its worker must not have started.
func (a *Auditor) assign(v *version, w *model.TaskWorker) {
	a.begin(v, w)
	if w.State >= model.WorkerStarting {
		a.started(v, model.WorkerUnset, w)
	}
	if a.step.jump {
		return
	}
	// One transaction may assign a worker and record that its executor is lost, that its
	// reservation is cancelled, or that its executor refuses the assigner.
	if w.State == model.WorkerFailed && w.Attempts == 0 && (w.Reason == fault.ReasonExecutorRefuses ||
		w.Reason == fault.ReasonRoundsExhausted) {
		return
	}
	if w.State != model.WorkerAssigned && w.State != model.WorkerLost && w.State != model.WorkerEvict &&
		w.State != model.WorkerEvicted {
		a.violate(RuleWorkerState, "%s: worker %s began as %s", v, w.ID, w.State)
	}
	switch ordinal, leased := v.placed(w.ID); {
	case !leased:
		a.violate(RulePlacement, "%s: worker %s was assigned without a lease", v, w.ID)
	case ordinal != w.Ordinal:
		a.violate(RulePlacement, "%s: worker %s was leased on %s and assigned to %s", v, w.ID, a.name(ordinal),
			a.name(w.Ordinal))
	}
}

// move applies a change of a worker's state.
func (a *Auditor) move(v *version, prev, next *model.TaskWorker) {
	if next.Unconfirmed && (next.State != model.WorkerLost || prev.State.Terminal() && !prev.Unconfirmed) {
		a.violate(RuleWorkerState, "%s: worker %s was %s and became %s", v, next.ID, stateOf(prev), stateOf(next))
	}
	if prev.State == next.State {
		return
	}
	// A snapshot may hide steps, but states never move back or out of an end state.
	may := prev.State.MayBecome(next.State) || a.step.jump && !prev.State.Terminal() && next.State > prev.State
	if !may {
		a.violate(RuleWorkerState, "%s: worker %s went from %s to %s", v, next.ID, prev.State, next.State)
	}
	a.started(v, prev.State, next)
	switch {
	case next.State.Terminal() && !prev.State.Terminal():
		a.end(v, prev)
	case prev.State.Terminal() && !next.State.Terminal():
		a.begin(v, next)
	}
}

// deleted applies the deletion of a chunk. Unfinished workers may be deleted only if the
// task was never complete: before that, no agent gets a start request.
func (a *Auditor) deleted(v *version, chunk *model.TaskChunk) {
	left := 0
	for i := range chunk.Workers {
		if chunk.Workers[i].Occupies() {
			left++
		}
		a.end(v, &chunk.Workers[i])
	}
	if left > 0 && v.complete && !a.step.jump {
		a.violate(RuleNeverLost, "%s: chunk %d of its task was deleted with %d workers that had not ended", v, chunk.Chunk,
			left)
	}
}

// checkTasks checks the tasks that this revision created or completed.
func (a *Auditor) checkTasks() {
	for _, v := range slices.Compact(a.step.grown) {
		if !v.unfinished() {
			a.violate(RuleNoRevival, "%s got a task while %s", v, v.state())
		}
		if v.r != nil && v.r.Holds() && !a.step.jump {
			a.violate(RuleHold, "%s got a task without a bind", v)
		}
	}
	for _, v := range a.step.completed {
		workers := 0
		for _, chunk := range v.tasks {
			workers += len(chunk.Workers)
		}
		if v.r != nil && (workers != v.r.Workers.Len() || int(v.header.Workers) != workers ||
			int(v.header.Chunks) != len(v.tasks)) {
			a.violate(RuleAllOrNone, "%s: its task is complete with %d of %d workers, in %d of %d chunks",
				v, workers, v.r.Workers.Len(), len(v.tasks), v.header.Chunks)
		}
	}
}
