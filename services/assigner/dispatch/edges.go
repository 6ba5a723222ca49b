package dispatch

import (
	"time"

	"berth.dev/pkg/model"
)

// The kinds of findings.
const (
	// FindingNotAcknowledged: an executor has not acknowledged a worker by the deadline.
	FindingNotAcknowledged = "NOT_ACKNOWLEDGED"
	// FindingNotRunning: an executor has begun the start of a worker and does not report it
	// as running by the deadline.
	FindingNotRunning = "NOT_RUNNING"
	// FindingQuarantined: a worker is quarantined: its stop was requested and its end is
	// not confirmed by the deadline. Quarantined records are not part of this finding. The
	// finding ends when the executor confirms the end or is LOST, or with a [Clear].
	FindingQuarantined = "QUARANTINED"
	// FindingOrphanedWorker: an executor has an orphaned worker. The worker has no record, was
	// given up, has another epoch, or belongs on another executor. The finding ends when
	// the executor confirms the worker's end.
	FindingOrphanedWorker = "ORPHANED_WORKER"
	// FindingRefusesLeader: an executor refuses the requests of the assigner's leader.
	// The finding ends when the executor registers again.
	FindingRefusesLeader = "REFUSES_LEADER"
)

// FindingKinds has all kinds.
var FindingKinds = []string{FindingNotAcknowledged, FindingNotRunning, FindingQuarantined, FindingOrphanedWorker,
	FindingRefusesLeader}

// Edge is one row of the table of state transitions.
type Edge struct {
	From, To model.WorkerState
	// Owner is the party that causes the transition.
	Owner string
	// Deadline counts from the time at which the worker entered From, or at which its
	// executor began its start. Zero means no deadline. Grace adds the worker's grace
	// period. StartLimit extends the deadline to the worker's start timeout and grace period
	// if that is longer.
	Deadline   time.Duration
	Grace      bool
	StartLimit bool
	// Miss is the kind of the finding for a missed deadline, and Action what Berth does
	// then.
	Miss, Action string
}

// The owners of edges.
const (
	ownerExecutor = "executor's acknowledgement"
	ownerReport   = "executor's report"
	ownerAttempts = "assigner: no attempts left"
	ownerCancel   = "assigner: reservation ends, worker cancelled, executor drained or batch withdrawn"
	ownerEnd      = "assigner: reservation ends, worker cancelled, executor drained, batch withdrawn or end of its lifetime"
	ownerStop     = "executor's promise"
	ownerSelf     = "executor's own stop"
	ownerUnsent   = "assigner: cancelled before it was sent; else executor's own stop"
	ownerLost     = "executor-state: executor LOST"
	ownerSilent   = "executor-state: executor LOST or silent"
	ownerUnheard  = "executor-state: executor LOST or silent; or an operator: quarantine cleared"
)

// The actions of findings.
const (
	actionStart          = "start requests wait for the executor's presence, or are retried: check the agent"
	actionRun            = "the worker keeps its executor until it runs, ends or is cancelled: check the host"
	actionStop           = "the stop request is repeated; the capacity stays used until the executor confirms the end, is LOST, or the quarantine is cleared: check the host"
	actionNotReady       = "the worker is stopped once the registry is ready: run berth mark-ready when all job services have repeated their requests"
	actionRefused        = "until it registers again, the executor gets no new workers, and workers that it has not started are placed elsewhere: restart its agent"
	actionOrphanedWorker = "the stop request is repeated until the executor confirms the end: check the host"
)

// Edges has every state transition of a worker.
var Edges = []Edge{
	{From: model.WorkerAssigned, To: model.WorkerStarting, Owner: ownerExecutor, Deadline: time.Minute,
		Miss: FindingNotAcknowledged, Action: actionStart},
	{From: model.WorkerAssigned, To: model.WorkerRunning, Owner: ownerExecutor},
	{From: model.WorkerAssigned, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerAssigned, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerAssigned, To: model.WorkerFailed, Owner: ownerAttempts},
	{From: model.WorkerAssigned, To: model.WorkerLost, Owner: ownerSilent},
	{From: model.WorkerAssigned, To: model.WorkerEvicted, Owner: ownerUnsent},

	{From: model.WorkerStarting, To: model.WorkerRunning, Owner: ownerReport, Deadline: 10 * time.Minute, StartLimit: true,
		Miss: FindingNotRunning, Action: actionRun},
	{From: model.WorkerStarting, To: model.WorkerEvict, Owner: ownerCancel},
	{From: model.WorkerStarting, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerStarting, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerStarting, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerStarting, To: model.WorkerEvicted, Owner: ownerSelf},

	{From: model.WorkerRunning, To: model.WorkerEvict, Owner: ownerEnd},
	{From: model.WorkerRunning, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerRunning, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerRunning, To: model.WorkerLost, Owner: ownerLost},
	{From: model.WorkerRunning, To: model.WorkerEvicted, Owner: ownerSelf},

	{From: model.WorkerEvict, To: model.WorkerEvicting, Owner: ownerStop, Deadline: 30 * time.Second, Grace: true,
		Miss: FindingQuarantined, Action: actionStop},
	{From: model.WorkerEvict, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvict, To: model.WorkerLost, Owner: ownerUnheard},
	{From: model.WorkerEvict, To: model.WorkerEvicted, Owner: ownerStop},

	{From: model.WorkerEvicting, To: model.WorkerEvicted, Owner: ownerStop, Deadline: 30 * time.Second, Grace: true,
		Miss: FindingQuarantined, Action: actionStop},
	{From: model.WorkerEvicting, To: model.WorkerCompleted, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerFailed, Owner: ownerReport},
	{From: model.WorkerEvicting, To: model.WorkerLost, Owner: ownerUnheard},
}
