package dispatch

import (
	"time"

	"berth.dev/pkg/model"
)

// The kinds of findings.
const (
	// FindingNotAcknowledged: an executor was not reached, or has not answered,
	// for a worker that it was given long ago. Orders wait for the executor's
	// presence, or are retried.
	FindingNotAcknowledged = "NOT_ACKNOWLEDGED"
	// FindingNotRunning: an executor took a worker long ago and does not report
	// it as running. The worker keeps its executor until it runs, ends or is
	// cancelled.
	FindingNotRunning = "NOT_RUNNING"
	// FindingQuarantined: a worker was told to stop and its end is not
	// confirmed. Its capacity stays used until its executor says that it is
	// gone, or is lost, or an operator says so ([Clear]).
	FindingQuarantined = "QUARANTINED"
	// FindingStray: an executor has a worker that it should not have: nobody
	// knows it, it was given up, its epoch is another, or it belongs elsewhere.
	// It is found until the executor confirms its end.
	FindingStray = "STRAY"
	// FindingRefusesLeader: an executor refuses the requests of the assigner's leader.
	// It ends when the executor has registered again.
	FindingRefusesLeader = "REFUSES_LEADER"
)

// FindingKinds are all of them.
var FindingKinds = []string{FindingNotAcknowledged, FindingNotRunning, FindingQuarantined, FindingStray, FindingRefusesLeader}

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
	// Miss is the kind of the finding, Action what is done about it.
	Miss, Action string
}

// The owners of edges.
const (
	ownerExecutor = "executor's acknowledgement"
	ownerReport   = "executor's report"
	ownerBudget   = "assigner: attempts spent"
	ownerCancel   = "assigner: reservation ends, worker cancelled, executor drained or batch withdrawn"
	ownerStop     = "executor's promise"
	ownerSelf     = "executor's own stop"
	ownerUnsent   = "assigner: cancelled before it was sent; else executor's own stop"
	ownerLost     = "executor-state: executor LOST"
	ownerCleared  = "executor-state: executor LOST; or an operator: quarantine cleared"
)

// What is done about workers that miss their deadlines.
const (
	actionSubmit  = "orders to start wait for the executor's presence, or are retried"
	actionRun     = "the worker keeps its executor until it runs, ends or is cancelled"
	actionStop    = "the order to stop is repeated; the capacity stays used until the executor confirms the end, is LOST, or the quarantine is cleared"
	actionHeld    = "it is told to stop once the registry is ready"
	actionRefused = "it gets no new workers, and those that it has not started are placed elsewhere, until it registers again: restart its agent"
	actionStray   = "the order to stop is repeated until the executor confirms the end"
)

// Edges is the life of a worker: every edge that the assigner writes.
var Edges = []Edge{
	{From: model.WorkerAssigned, To: model.WorkerStarting, Owner: ownerExecutor, Deadline: time.Minute,
		Miss: FindingNotAcknowledged, Action: actionSubmit},
	{From: model.WorkerAssigned, To: model.WorkerRunning, Owner: ownerExecutor},
	{From: model.WorkerAssigned, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerAssigned, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerAssigned, To: model.WorkerFailed, Owner: ownerBudget},
	{From: model.WorkerAssigned, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerAssigned, To: model.WorkerEvicted, Owner: ownerUnsent},

	{From: model.WorkerStarting, To: model.WorkerRunning, Owner: ownerReport, Deadline: 10 * time.Minute,
		Miss: FindingNotRunning, Action: actionRun},
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
		Miss: FindingQuarantined, Action: actionStop},
	{From: model.WorkerEvict, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerLost, Owner: ownerCleared},
	{From: model.WorkerEvict, To: model.WorkerEvicted, Owner: ownerStop},

	{From: model.WorkerEvicting, To: model.WorkerEvicted, Owner: ownerStop, Deadline: 30 * time.Second, Grace: true,
		Miss: FindingQuarantined, Action: actionStop},
	{From: model.WorkerEvicting, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerLost, Owner: ownerCleared},
}
