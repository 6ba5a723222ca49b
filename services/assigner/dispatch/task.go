package dispatch

import (
	"slices"

	"berth.dev/pkg/model"
)

// task is the assignments of one lease. A header that is not complete gives no
// orders, and its workers count nowhere.
type task struct {
	uid    string
	header *model.TaskHeader
	// chunks is indexed by chunk; nil where one is not there.
	chunks []*model.TaskChunk
	counts Counts
	// unwanted are the workers that were cancelled one by one; leaving counts
	// those of their workers that no stop was decided for yet.
	unwanted model.WorkerSet
	leaving  int
}

// slot is where a task keeps a worker.
type slot struct {
	chunk int32
	i     int
}

func (t *task) active() bool { return t.header != nil && t.header.Complete }

// unended counts the workers that have not ended.
func (t *task) unended() int {
	n := 0
	for state, count := range t.counts {
		if !model.WorkerState(state).Terminal() {
			n += count
		}
	}
	return n
}

// startable counts the workers that no stop was decided for.
func (t *task) startable() int {
	return t.counts[model.WorkerAssigned] + t.counts[model.WorkerStarting] + t.counts[model.WorkerRunning]
}

// together says whether a batch that is to start together has not done so yet:
// a worker that has not run is still to start. Once there is none, what becomes
// of one worker is nothing to the others.
func (t *task) together(r reservation) bool {
	return r.Reservation != nil && r.Spec.Start == model.StartTogether &&
		t.counts[model.WorkerAssigned]+t.counts[model.WorkerStarting] > 0
}

// leaves says whether a worker is to be stopped because its index is unwanted.
func (t *task) leaves(w *model.TaskWorker) bool {
	return w.State < model.WorkerEvict && t.unwanted.Has(w.ID)
}

func (t *task) chunk(n int32) *model.TaskChunk {
	if int(n) >= len(t.chunks) {
		return nil
	}
	return t.chunks[n]
}

// find looks a worker up. Chunks hold the workers in order, one after the other.
func (t *task) find(workerID model.WorkerID) (slot, bool) {
	if !t.active() {
		return slot{}, false
	}
	n, _ := slices.BinarySearchFunc(t.chunks, workerID, func(chunk *model.TaskChunk, workerID model.WorkerID) int {
		if chunk == nil || len(chunk.Workers) == 0 {
			return -1
		}
		return chunk.Workers[len(chunk.Workers)-1].ID.Compare(workerID)
	})
	if n == len(t.chunks) || t.chunks[n] == nil {
		return slot{}, false
	}
	i, found := slices.BinarySearchFunc(t.chunks[n].Workers, workerID, func(w model.TaskWorker, workerID model.WorkerID) int {
		return w.ID.Compare(workerID)
	})
	return slot{int32(n), i}, found
}

// tracedOrders is of how many workers of a task the orders are traced.
const tracedOrders = 16

// traceOf answers the trace that the orders of a worker belong to: the
// reservation's for the first workers of a task, none for the others.
func (t *task) traceOf(workerID model.WorkerID) model.Trace {
	if t == nil || t.header == nil || t.header.Trace == "" {
		return ""
	}
	if at, found := t.find(workerID); !found || at.chunk > 0 || at.i >= tracedOrders {
		return ""
	}
	return t.header.Trace
}

// instance names what the executor of a worker has, if it has what is recorded.
func (t *task) instance(workerID model.WorkerID) instance {
	return instance{t.uid, t.worker(workerID), t.header.Epoch}
}

// worker names the one with that ID.
func (t *task) worker(workerID model.WorkerID) model.Worker {
	return model.Worker{Job: t.header.Key.Job, Stage: t.header.Key.Stage, ID: workerID}
}
