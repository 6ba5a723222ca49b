package dispatch

import (
	"time"

	"berth.dev/pkg/model"
)

// Nonce is the nonce of a registration. It is a secret, so it hides itself when printed.
type Nonce string

// String hides the nonce.
func (Nonce) String() string { return "" }

// GoString hides the nonce.
func (Nonce) GoString() string { return `""` }

// Request is the common part of a request to the agent of an executor.
type Request struct {
	Term int64
	// Call identifies the call in the leader's term. The event of its outcome has it too.
	Call int64
	// Executor, Address and Incarnation are copied from the executor's record.
	Executor    string
	Address     string
	Incarnation int64
	// Nonce is the nonce of the executor's registration. Agents refuse requests without it.
	Nonce  Nonce
	Worker model.Worker
	UID    string
	Epoch  int64
	// Timeout is the maximum time for the answer. After it, the outcome is Unknown.
	Timeout time.Duration
	// Fresh requires a new connection, because an attempt over an earlier connection
	// failed.
	Fresh bool
	// Trace is the reservation's trace for the first few workers of a task, and empty for
	// the others: a batch of thousands must not trace thousands of calls.
	Trace model.Trace
}

// Submit requests an executor to start a worker. The shell must call Core.Wanted before it
// sends a Submit.
type Submit struct {
	Request
	// Attempt counts from 1.
	Attempt int32
	// Workers is the number of workers of the gang, and Reservation the name of its
	// reservation.
	Workers     int32
	Reservation string
	// Task is that of the reservation's record. It must not be changed.
	Task *model.Task
	// Volume is the volume on which the worker starts; nil for a worker without one.
	Volume *VolumeStart
}

// VolumeStart is the volume on which a worker starts.
type VolumeStart struct {
	ID string
	// Create is true if no worker can have used the volume. Otherwise the executor refuses
	// the worker if it does not have the volume.
	Create bool
}

// Stop requests an executor to stop a worker, and never to start it again.
type Stop struct {
	Request
	// Grace is the time that the worker has to end after its termination signal.
	Grace time.Duration
}

// DropVolumes requests an executor to destroy volumes. The Request names no worker.
type DropVolumes struct {
	Request
	// IDs has at most 1,000 volumes.
	IDs []string
}

// MembersChanged reports that the members of a reservation may have changed, for which a
// caller waits; see [Core.Watch].
type MembersChanged struct{ Key model.Key }

// Done returns the event of a Submit that was carried out.
func (s Submit) Done(outcome any) SubmitDone {
	return SubmitDone{Executor: s.Executor, UID: s.UID, WorkerID: s.Worker.ID, Attempt: s.Attempt, Call: s.Call,
		Outcome: from(outcome, s.Incarnation)}
}

// Done returns the event of a Stop that was carried out.
func (s Stop) Done(result any) StopDone {
	return StopDone{Executor: s.Executor, Worker: s.Worker, UID: s.UID, Epoch: s.Epoch, Call: s.Call,
		Result: from(result, s.Incarnation)}
}

// Done returns the event of a DropVolumes that was carried out.
func (d DropVolumes) Done(outcome any) DropDone {
	return DropDone{Executor: d.Executor, Call: d.Call, Outcome: from(outcome, d.Incarnation)}
}

// from sets the incarnation of a refusal, and returns any other outcome unchanged.
func from(outcome any, incarnation int64) any {
	if r, ok := outcome.(Refused); ok {
		r.Incarnation = incarnation
		return r
	}
	return outcome
}
