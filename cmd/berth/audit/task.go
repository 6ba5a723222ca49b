package audit

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// setHeader moves the header of a task. What once had one stands in no queue
// any more.
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
		a.step.complete = append(a.step.complete, v)
	}
}

// setTask moves one chunk of a task, worker by worker.
func (a *Auditor) setTask(ref model.Ref, next *model.TaskChunk) {
	v := a.touch(ref.ID)
	prev := v.tasks[ref.Chunk]
	if next == nil {
		delete(v.tasks, ref.Chunk)
	} else {
		v.tasks[ref.Chunk] = next
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
		a.violate(RulePlacement, "%s: chunk %d of its task names other workers or executors than before", v, ref.Chunk)
		for i := range prev.Workers {
			a.end(v, &prev.Workers[i])
		}
		for i := range next.Workers {
			a.begin(v, &next.Workers[i])
		}
	}
}

func sameWorkers(x, y *model.TaskChunk) bool {
	if len(x.Workers) != len(y.Workers) {
		return false
	}
	for i := range x.Workers {
		if x.Workers[i].ID != y.Workers[i].ID || x.Workers[i].Ordinal != y.Workers[i].Ordinal {
			return false
		}
	}
	return true
}

// assign takes a new assignment: on the executor that was leased, and not
// under way yet.
func (a *Auditor) assign(v *version, w *model.TaskWorker) {
	a.begin(v, w)
	if w.State >= model.WorkerStarting {
		a.started(v, model.WorkerUnset, w)
	}
	if a.step.jump {
		return
	}
	// One transaction may both assign a worker and find its executor lost, its
	// reservation cancelled, or that its executor refuses the assigner.
	if w.State == model.WorkerFailed && w.Attempts == 0 && (w.Reason == fault.ReasonExecutorRefuses || w.Reason == fault.ReasonRoundsExhausted) {
		return
	}
	if w.State != model.WorkerAssigned && w.State != model.WorkerLost && w.State != model.WorkerEvict && w.State != model.WorkerEvicted {
		a.violate(RuleWorkerState, "%s: worker %s began as %s", v, w.ID, w.State)
	}
	switch ordinal, leased := v.placed(w.ID); {
	case !leased:
		a.violate(RulePlacement, "%s: worker %s was assigned without a lease", v, w.ID)
	case ordinal != w.Ordinal:
		a.violate(RulePlacement, "%s: worker %s was leased %s and assigned to %s", v, w.ID, a.name(ordinal), a.name(w.Ordinal))
	}
}

// move takes a worker from one state to the next.
func (a *Auditor) move(v *version, prev, next *model.TaskWorker) {
	if prev.State == next.State {
		return
	}
	// A jump may hide steps, but never lead back or out of an end.
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

// deleted takes a chunk that is gone. Only what was never submitted may go
// before it has ended: a task that was not complete.
func (a *Auditor) deleted(v *version, chunk *model.TaskChunk) {
	left := 0
	for i := range chunk.Workers {
		if !chunk.Workers[i].State.Terminal() {
			left++
		}
		a.end(v, &chunk.Workers[i])
	}
	if left > 0 && v.complete && !a.step.jump {
		a.violate(RuleNeverLost, "%s: chunk %d of its task was deleted with %d workers that had not ended", v, chunk.Chunk, left)
	}
}

// checkTasks judges the tasks that were created, or completed, by this
// revision.
func (a *Auditor) checkTasks() {
	if a.step.jump {
		return
	}
	var last *version
	for _, v := range a.step.grown {
		if v != last && !v.living() {
			a.violate(RuleNoRevival, "%s got a task while %s", v, v.state())
		}
		last = v
	}
	for _, v := range a.step.complete {
		workers := 0
		for _, chunk := range v.tasks {
			workers += len(chunk.Workers)
		}
		if v.r != nil && (workers != v.r.Workers.Len() || int(v.header.Workers) != workers || int(v.header.Chunks) != len(v.tasks)) {
			a.violate(RuleAllOrNone, "%s: its task is complete with %d of %d workers, in %d of %d chunks",
				v, workers, v.r.Workers.Len(), len(v.tasks), v.header.Chunks)
		}
	}
}
