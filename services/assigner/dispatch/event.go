package dispatch

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Report is the input with an executor's report of its workers. Its reply is a Reported.
// The core refuses the report with OTHER_INCARNATION if the executor has registered
// again since, and with UNAVAILABLE if the view does not have the executor yet.
type Report struct {
	Executor    string
	Incarnation int64
	// Sequence rises with every report and acknowledgement of an incarnation.
	Sequence int64
	// Complete: the executor has no other workers than those listed.
	Complete bool
	Workers  []WorkerStatus
}

// Reports is the input with the reports of several executors, one of each. Its reply is
// a []ReportResult, one for each report in order. The changes of one task are one
// effect, with one job event of a kind.
type Reports []Report

// ReportResult is the answer to one of several reports, or the reason of its refusal.
type ReportResult struct {
	Reported
	Err error
}

// Status is what an executor says of a worker's state.
type Status struct {
	State    model.WorkerState
	ExitCode *int32
	// Signal is the number of the signal that ended the process, 0 for none.
	Signal int32
	Error  string
}

// WorkerStatus is the status of one worker in a report. Its state is STARTING, RUNNING,
// EVICTING, COMPLETED, FAILED or EVICTED; the core ignores a status with any other.
type WorkerStatus struct {
	Worker model.Worker
	Epoch  int64
	UID    string
	Status
}

// Reported answers a Report.
type Reported struct {
	Executor string
	Sequence int64
	// Ended are the workers whose end is durable or that have no record: the executor
	// need not report them again.
	Ended []WorkerStatus
	// Orphans counts the orphaned workers of the executor, which are being stopped. Only
	// reports to this leader count, so there may be more before a complete one.
	Orphans int
	// Term is the term of this leader.
	Term int64
}

// Clear is the input by which an operator confirms that workers have exited whose stop
// the executor does not confirm. Its reply is a Cleared. The core refuses the whole
// request with NOT_QUARANTINED if a worker is not EVICT or EVICTING past its deadline,
// and with NOT_FOUND if there is no such executor. It ignores workers that have ended or
// do not exist.
type Clear struct {
	Executor  string
	RequestID string
	Workers   []Assigned
}

// Assigned identifies a worker at one epoch, so that no later worker of the same name is
// meant.
type Assigned struct {
	Worker model.Worker
	Epoch  int64
}

// Cleared answers a Clear: Count is how many workers the request, sent once or
// repeatedly, has made LOST.
type Cleared struct {
	Count int
}

// SubmitDone is the event of a Submit's outcome. Every Submit gets one.
type SubmitDone struct {
	Executor string
	UID      string
	WorkerID model.WorkerID
	Attempt  int32
	// Outcome is an Accepted, a Refused, an Unknown or a NotSent.
	Outcome any
}

// SubmitsDone is the event of the outcomes of several Submits. The changes of one task
// are one effect, with one job event of a kind.
type SubmitsDone []SubmitDone

// StopDone is the event of a Stop's outcome. Every Stop gets one.
type StopDone struct {
	Executor string
	// Worker, UID and Epoch are the request's: an executor may have the same uid and
	// worker ID at another epoch as well.
	Worker model.Worker
	UID    string
	Epoch  int64
	// Result is a Stopping, an Ended, a Refused or an Unknown. A refusal does not
	// confirm the end of the worker.
	Result any
}

// Accepted means that the executor has the worker, which may have ended since.
type Accepted struct {
	Status
	Incarnation int64
	Sequence    int64
}

// Refused is definite: the executor does not start the worker for this request.
type Refused struct {
	Reason  fault.Reason
	Message string
	// Incarnation is the one that the request was sent to, 0 for that of the call. The
	// core may handle an answer again, after an abandoned effect, when another call to a
	// later incarnation is in flight.
	Incarnation int64
}

// Unknown means that there was no valid answer. The request may have been carried out.
type Unknown struct {
	Message string
}

// NotSent means that the request was no longer wanted (Core.Wanted).
type NotSent struct{}

// Stopping means that the executor has acknowledged the stop, and will report the end.
type Stopping struct{}

// Ended means that the worker does not run, and that the executor never starts it again.
type Ended Status
