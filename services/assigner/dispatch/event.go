package dispatch

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Report is the input with an executor's report of its workers. Its reply is a Reported.
// If the executor has registered again since, the core refuses the report with
// OTHER_INCARNATION. If the view does not have the executor yet, the core refuses it with
// UNAVAILABLE.
type Report struct {
	Executor    string
	Incarnation int64
	// Sequence rises with every report and every acknowledgement that the agent sends
	// within an incarnation.
	Sequence int64
	// Complete is true if Workers lists every worker that the executor has.
	Complete bool
	Workers  []WorkerStatus
}

// Reports is the input with one report of each of several executors. Its reply is a
// []ReportResult, one for each report in order. All changes of one task are one effect,
// which has one job event for each kind.
type Reports []Report

// ReportResult is the answer to one of several reports, or the reason of its refusal.
type ReportResult struct {
	Reported
	Err error
}

// Status is a worker's state as its executor reports it.
type Status struct {
	State    model.WorkerState
	ExitCode *int32
	// Signal is the number of the signal that ended the process, or 0.
	Signal int32
	Error  string
	// Reason is START_TIMEOUT if the executor stopped a FAILED worker because it was not
	// RUNNING in time. Otherwise it is empty.
	Reason fault.Reason
	// NeverStarted is set if the worker has ended and its executor certainly never started it.
	NeverStarted bool
	// BadTask is set if the worker could not be started because of its task.
	BadTask bool
	// Host is the host on which a worker in a cell runs; empty if it is not known.
	Host string
	// EndedFor is how long ago a worker ended; 0 if the executor does not say so.
	EndedFor time.Duration
}

// WorkerStatus is the status of one worker in a report. Its state is STARTING, RUNNING,
// EVICTING, COMPLETED, FAILED or EVICTED. The core ignores a status with another state.
type WorkerStatus struct {
	Worker model.Worker
	Epoch  int64
	UID    string
	// Queued is set if the executor has not begun the start of a STARTING worker. Otherwise
	// Begun is when it did, by the executor's clock, or zero if the executor does not say so.
	Queued bool
	Begun  time.Time
	Status
}

// Reported answers a Report.
type Reported struct {
	Executor string
	Sequence int64
	// Ended are the reported workers whose end is durable or that have no record. The
	// executor need not report them again.
	Ended []WorkerStatus
	// Orphans counts the orphaned workers of the executor, which the core stops. Only
	// reports to this leader count. Until this leader has received a complete report, the
	// executor may have more orphaned workers.
	Orphans int
	// Term is the term of this leader.
	Term int64
}

// Clear is the input by which an operator states that quarantined workers have exited:
// workers whose stop the executor does not confirm. Its reply is a Cleared. If a worker is
// not EVICT or EVICTING past its deadline, the core refuses the whole request with
// NOT_QUARANTINED. If the executor does not exist, it refuses the request with NOT_FOUND.
// It ignores workers that have ended or do not exist.
type Clear struct {
	Executor  string
	RequestID string
	Workers   []Assigned
}

// Assigned identifies a worker at one epoch, so that it never means a later worker of the
// same name.
type Assigned struct {
	Worker model.Worker
	Epoch  int64
}

// Cleared answers a Clear. Count is the number of workers that the request has made LOST.
// A repeat of the request counts the same workers.
type Cleared struct {
	Count int
}

// SubmitDone is the event of a Submit's outcome. Every Submit gets one.
type SubmitDone struct {
	Executor string
	UID      string
	WorkerID model.WorkerID
	Attempt  int32
	// Call is that of the request.
	Call int64
	// Outcome is an Accepted, a Refused, an Inconclusive, an Unknown, an Undelivered or a NotSent.
	Outcome any
}

// SubmitsDone is the event of the outcomes of several Submits. All changes of one task
// are one effect, which has one job event for each kind.
type SubmitsDone []SubmitDone

// StopDone is the event of a Stop's outcome. Every Stop gets one.
type StopDone struct {
	Executor string
	// Worker, UID and Epoch identify the worker that the request stops. An executor may
	// have the same uid and worker ID at another epoch as well.
	Worker model.Worker
	UID    string
	Epoch  int64
	// Call is that of the request.
	Call int64
	// Result is a Stopping, an Ended, a Refused, an Inconclusive or an Unknown. A refusal does
	// not confirm the end of the worker.
	Result any
}

// DropDone is the event of a DropVolumes's outcome. Every DropVolumes gets one.
type DropDone struct {
	Executor string
	// Call is that of the request.
	Call int64
	// Outcome is a Dropping, a Refused, an Inconclusive or an Unknown.
	Outcome any
}

// Accepted means that the executor has accepted the worker. The worker may have ended
// since.
type Accepted struct {
	Status
	Incarnation int64
	Sequence    int64
}

// Refused is a definite outcome: the executor does not carry out this request.
type Refused struct {
	Reason  fault.Reason
	Message string
	// Incarnation is the incarnation to which the request was sent, or 0 for the
	// incarnation of the call. After an abandoned effect, the core may handle an answer
	// again while another call to a later incarnation is in flight.
	Incarnation int64
	// BadTask is set if the task is the reason.
	BadTask bool
}

// Inconclusive means that the agent answered, and that the answer does not show whether the
// request was carried out.
type Inconclusive struct {
	Message string
}

// Unknown means that there was no answer. The request may have been carried out.
type Unknown struct {
	Message string
}

// Undelivered means that no connection to the agent could be made, so the agent has certainly
// not received the request.
type Undelivered struct {
	Message string
}

// NotSent means that the shell did not send the request, because it was no longer wanted
// (Core.Wanted).
type NotSent struct{}

// Stopping means that the executor has acknowledged the stop, and will report the
// worker's end.
type Stopping struct{}

// Dropping means that the executor has accepted a DropVolumes. It confirms the end of each
// volume to executor-state.
type Dropping struct{}

// Ended means that the worker does not run, and that the executor never starts it again.
type Ended Status
