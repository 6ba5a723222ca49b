package dispatch

import (
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// task has the assignments of one lease. While its header is not complete, the task causes
// no requests, and its workers are not counted.
type task struct {
	uid    string
	header *model.TaskHeader
	// chunks is indexed by chunk number; a chunk without a record is nil.
	chunks []*model.TaskChunk
	counts Counts
	// unconfirmed counts the workers that are Unconfirmed.
	unconfirmed int
	// unwanted are the workers that were cancelled one by one. leaving counts the
	// unwanted workers for which no stop is decided yet.
	unwanted model.WorkerSet
	leaving  int
	// lifetime is how long a worker may be RUNNING, or 0 for no limit.
	lifetime time.Duration
}

// slot is the place of a worker in a task.
type slot struct {
	chunk int32
	i     int
}

// active reports whether the task is complete, so that its workers may be started.
func (t *task) active() bool { return t.header != nil && t.header.Complete }

// live counts the workers that have not ended.
func (t *task) live() int {
	n := 0
	for state, count := range t.counts {
		if !model.WorkerState(state).Terminal() {
			n += count
		}
	}
	return n
}

// wanted counts the workers for which no stop is decided.
func (t *task) wanted() int {
	return t.counts[model.WorkerAssigned] + t.counts[model.WorkerStarting] + t.counts[model.WorkerRunning]
}

// startsTogether reports whether the task is a gang with a worker that has not run yet.
// When all workers have run, the end of one worker does not affect the others. A requeue is
// a single worker of a gang that has run, so it is no gang.
func (t *task) startsTogether(r reservation) bool {
	return r.Reservation != nil && r.Spec.Start == model.StartTogether && r.Origin != model.OriginRequeue &&
		t.counts[model.WorkerAssigned]+t.counts[model.WorkerStarting] > 0
}

// leaves reports whether a worker was cancelled and its stop is not decided yet.
func (t *task) leaves(w *model.TaskWorker) bool {
	return w.State < model.WorkerEvict && t.unwanted.Has(w.ID)
}

func (t *task) chunk(n int32) *model.TaskChunk {
	if int(n) >= len(t.chunks) {
		return nil
	}
	return t.chunks[n]
}

// find returns the place of a worker. The chunks have the workers in the order of worker
// IDs.
func (t *task) find(workerID model.WorkerID) (slot, bool) {
	if !t.active() {
		return slot{}, false
	}
	n, _ := slices.BinarySearchFunc(t.chunks, workerID, func(chunk *model.TaskChunk, workerID model.WorkerID) int {
		if size(chunk) == 0 {
			return -1
		}
		return chunk.Workers[len(chunk.Workers)-1].ID.Compare(workerID)
	})
	if n == len(t.chunks) || t.chunks[n] == nil {
		return slot{}, false
	}
	i, found := slices.BinarySearchFunc(t.chunks[n].Workers, workerID,
		func(w model.TaskWorker, workerID model.WorkerID) int {
			return w.ID.Compare(workerID)
		})
	return slot{int32(n), i}, found
}

// tracedWorkers is the number of workers of a task whose requests are traced.
const tracedWorkers = 16

// traceOf returns the reservation's trace for the first tracedWorkers workers of a task,
// and "" for all others.
func (t *task) traceOf(workerID model.WorkerID) model.Trace {
	if t == nil || t.header == nil || t.header.Trace == "" {
		return ""
	}
	if at, found := t.find(workerID); !found || at.chunk > 0 || at.i >= tracedWorkers {
		return ""
	}
	return t.header.Trace
}

// instance returns the instance of a worker that its executor should have.
func (t *task) instance(workerID model.WorkerID) instance {
	return instance{t.uid, t.worker(workerID), t.header.Epoch}
}

// worker returns the full name of a worker.
func (t *task) worker(workerID model.WorkerID) model.Worker {
	return model.Worker{Job: t.header.Key.Job, Stage: t.header.Key.Stage, ID: workerID}
}
