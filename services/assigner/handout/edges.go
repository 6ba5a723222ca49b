package handout

import (
	"time"

	"berth.dev/pkg/model"
)

// Edge is one row of the table of states: who brings a worker from one to the
// next, by when, and what is found when it does not come.
type Edge struct {
	From, To model.WorkerState
	// Owner is whose word the edge is written on.
	Owner string
	// Deadline counts from when the worker came to From; zero where nobody
	// waits for the edge. Grace adds the worker's own.
	Deadline time.Duration
	Grace    bool
	// Miss is the kind of the finding, Done what the core does about it.
	Miss, Done string
}

// The owners of edges.
const (
	ownerExecutor = "executor's acknowledgement"
	ownerReport   = "executor's report"
	ownerBudget   = "assigner: attempts spent"
	ownerCancel   = "assigner: reservation ends"
	ownerStop     = "executor's promise"
	ownerSelf     = "executor's own stop"
	ownerLost     = "executor-state: executor LOST"
)

// Edges is the life of a worker: every edge that the assigner writes.
var Edges = []Edge{
	{From: model.WorkerAssigned, To: model.WorkerStarting, Owner: ownerExecutor, Deadline: time.Minute,
		Miss: "NOT_ACKNOWLEDGED", Done: "submits wait for the executor's presence, or are retried"},
	{From: model.WorkerAssigned, To: model.WorkerRunning, Owner: ownerExecutor},
	{From: model.WorkerAssigned, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerAssigned, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerAssigned, To: model.WorkerFailed, Owner: ownerBudget},
	{From: model.WorkerAssigned, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerAssigned, To: model.WorkerEvicted, Owner: ownerSelf},

	{From: model.WorkerStarting, To: model.WorkerRunning, Owner: ownerReport, Deadline: 10 * time.Minute,
		Miss: "NOT_RUNNING", Done: "the worker keeps its executor until it runs, ends or is cancelled"},
	{From: model.WorkerStarting, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerStarting, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerStarting, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerStarting, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerStarting, To: model.WorkerEvicted, Owner: ownerSelf},

	{From: model.WorkerRunning, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerRunning, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerRunning, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerRunning, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerRunning, To: model.WorkerEvicted, Owner: ownerSelf},

	{From: model.WorkerEvict, To: model.WorkerEvicting, Owner: ownerStop, Deadline: 30 * time.Second, Grace: true,
		Miss: "STOP_UNCONFIRMED", Done: "the stop is repeated; the capacity stays quarantined"},
	{From: model.WorkerEvict, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerEvict, To: model.WorkerEvicted, Owner: ownerStop},

	{From: model.WorkerEvicting, To: model.WorkerEvicted, Owner: ownerStop, Deadline: 30 * time.Second, Grace: true,
		Miss: "STOP_UNCONFIRMED", Done: "the stop is repeated; the capacity stays quarantined"},
	{From: model.WorkerEvicting, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerLost, Owner: ownerLost},
}

// Finding is a thing that missed its deadline, and is not forgotten for it.
type Finding struct {
	Kind string
	// Object names the worker and its executor.
	Object string
	Since  time.Time
	// Done is what is done about it.
	Done string
}

// finding says whether a worker has missed the deadline of its state.
func (c *Core) finding(now time.Time, t *task, w *model.TaskWorker) (Finding, bool) {
	for _, e := range Edges {
		if e.From != w.State || e.Deadline == 0 {
			continue
		}
		deadline := e.Deadline
		if e.Grace {
			deadline += c.grace(t.uid)
		}
		if now.Sub(w.Since) <= deadline {
			return Finding{}, false
		}
		object := t.worker(w.Seat).String() + " on " + c.executorID(w.Ordinal)
		return Finding{Kind: e.Miss, Object: object, Since: w.Since, Done: e.Done}, true
	}
	return Finding{}, false
}
