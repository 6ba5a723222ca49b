package dispatch

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Report is the request that brings what an executor says of its workers. Its
// reply's value is a Reported. It is refused with OTHER_INCARNATION when the
// executor has registered again since, and with UNAVAILABLE when the view does
// not know the executor yet.
type Report struct {
	Executor    string
	Incarnation int64
	// Sequence rises with every report and acknowledgement of an incarnation.
	Sequence int64
	// Complete: workers that are not listed are not there.
	Complete bool
	Workers  []WorkerStatus
}

// Reports is the request that brings the reports of several executors, one of
// each. Its reply's value is a []ReportResult, one for each report in order. What
// they change of one task is one effect, and the job is told of it by one event
// of a kind.
type Reports []Report

// ReportResult is the answer to one of several reports, or why it is refused.
type ReportResult struct {
	Reported
	Err error
}

// WorkerStatus is what an executor says of one worker.
type WorkerStatus struct {
	Worker model.Worker
	Epoch  int64
	UID    string
	// State is STARTING, RUNNING, EVICTING, COMPLETED, FAILED or EVICTED; a
	// status with any other is passed over.
	State    model.WorkerState
	ExitCode *int32
	// Signal is the number of the signal that ended the process, 0 for none.
	Signal int32
	Error  string
	Since  time.Time
}

// Reported answers a Report.
type Reported struct {
	Executor string
	Sequence int64
	// Ended are the workers whose end is durable, or of which nothing is known:
	// the executor need not report them again.
	Ended []WorkerStatus
	// Strays is how many workers the executor has that no record wants there: they
	// are being stopped. Known are those of the reports of this term alone, so that
	// there may be more until one of them was complete.
	Strays int
	// Term is that of who answers.
	Term int64
}

// Clear is the request by which an operator says that workers whose stop an
// executor does not confirm are gone. Its reply's value is a Cleared. It is
// refused, all of it, with NOT_QUARANTINED for a worker that is not EVICT or
// EVICTING past its deadline, and with NOT_FOUND for an executor that is not
// there. Workers that have ended, or are not there, are passed over.
type Clear struct {
	Executor  string
	RequestID string
	Workers   []Assigned
}

// Assigned names a worker so that nothing that takes its index later is meant.
type Assigned struct {
	Worker model.Worker
	Epoch  int64
}

// Cleared answers a Clear: how many workers this request, sent once or more
// often, made LOST.
type Cleared struct {
	Count int
}

// SubmitDone tells what came of a Submit. Every Submit that is carried out gets
// one.
type SubmitDone struct {
	Executor string
	UID      string
	WorkerID model.WorkerID
	Attempt  int32
	// Outcome is an Accepted, a Refused, an Unknown or a NotSent.
	Outcome any
}

// SubmitsDone tells what came of several Submits at once. What it changes of one
// task is one effect, and the job is told of it by one event of a kind.
type SubmitsDone []SubmitDone

// StopDone tells what came of a Stop. Every Stop that is carried out gets one.
type StopDone struct {
	Executor string
	// Worker, UID and Epoch are the order's: an executor may have the same uid
	// and worker index at another epoch as well.
	Worker model.Worker
	UID    string
	Epoch  int64
	// Result is a Stopping, an Ended, a Refused or an Unknown. A refusal does not say
	// that the worker is gone.
	Result any
}

// Accepted: the executor has the worker, which may even have ended meanwhile.
type Accepted struct {
	State       model.WorkerState
	Incarnation int64
	Sequence    int64
	ExitCode    *int32
	// Signal is the number of the signal that ended the process, 0 for none.
	Signal int32
	Error  string
}

// Refused is definite: the executor does not start the worker for this order.
type Refused struct {
	Reason  fault.Reason
	Message string
	// Incarnation is the one that the order was for; 0 for that of the flight. What
	// was decided on an answer may be undone and the answer taken again, when another
	// flight to a later incarnation is under way.
	Incarnation int64
}

// Done is what came of the order.
func (s Submit) Done(outcome any) SubmitDone {
	return SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Outcome: from(outcome, s.Incarnation)}
}

// Done is what came of the order.
func (s Stop) Done(result any) StopDone {
	return StopDone{Executor: s.Executor, Worker: s.Worker, UID: s.UID, Epoch: s.Epoch, Result: from(result, s.Incarnation)}
}

// from says which incarnation has refused an order.
func from(outcome any, incarnation int64) any {
	if r, ok := outcome.(Refused); ok {
		r.Incarnation = incarnation
		return r
	}
	return outcome
}

// Unknown: no answer, or none that tells. The order may have been carried out.
type Unknown struct {
	Message string
}

// NotSent: the order did not stand any more when its turn came (Core.Stands).
type NotSent struct{}

// Stopping: the executor has acknowledged the order to stop, and will report
// the end.
type Stopping struct{}

// Ended: the worker does not run and is never started again.
type Ended struct {
	State    model.WorkerState
	ExitCode *int32
	// Signal is the number of the signal that ended the process, 0 for none.
	Signal int32
	Error  string
}
