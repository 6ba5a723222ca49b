package agent

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Driver starts and stops workers. Process, Functions and Simulated are the
// drivers of this package. A driver is safe for concurrent use.
type Driver interface {
	// Start starts a worker and returns once the worker runs. If Start returns an error, the
	// worker does not run and will not run because of this call; the caller may repeat the
	// start. The driver calls ended exactly once, when the worker has exited. It may call
	// ended from any goroutine, also before Start returns. If Start fails, it never calls
	// ended.
	//
	// With readiness REPORTED, Start does not wait until the worker is ready. The driver
	// calls spec.Ready once the worker has reported that it is ready, and never before. It
	// may call it from any goroutine, also before Start returns, but not after ended. If the
	// worker never reports, the driver never calls spec.Ready: the agent stops the worker
	// after spec.StartLimit.
	//
	// A Start that may take long must return soon after spec.Interrupted is closed.
	Start(spec Spec, ended func(Exit)) (Handle, error)
	// Adopt returns the workers of an earlier agent for which Forget was not called. Each of
	// them counts as running until the driver calls ended for it. If a worker ended in the
	// meantime, the driver calls ended at once. The agent calls Adopt before it starts a
	// worker. The driver calls ready instead of Spec.Ready if a worker reports only after its
	// adoption; a report before the adoption is in Adopted.
	Adopt(ready func(Spec), ended func(Spec, Exit)) ([]Adopted, error)
	// Close stops watching the workers; the workers keep running. The driver calls neither
	// ended nor ready after Close.
	Close() error
}

// commandNeeder is a driver that may be unable to start a task without a command. The registry refuses a bind
// with such a task.
type commandNeeder interface {
	// NeedsCommand reports whether a task must have a command.
	NeedsCommand() bool
}

// lister is a driver that refuses tasks by lists of what it allows.
type lister interface {
	// AllowLists returns a digest of the lists. Drivers with equal digests refuse the same tasks.
	AllowLists() string
}

func allowLists(d Driver) string {
	if l, ok := d.(lister); ok {
		return l.AllowLists()
	}
	return ""
}

func needsCommand(d Driver) bool {
	n, ok := d.(commandNeeder)
	return ok && n.NeedsCommand()
}

// Handle is a worker that a driver started or adopted.
type Handle interface {
	// Stop signals the worker to stop and returns without waiting for its end. If the worker
	// still runs after the grace period, it is killed. Stop may be called again; the
	// shortest grace period counts. late is set if the agent stops the worker because it was
	// not ready within Spec.StartLimit. The driver keeps this for the next agent, which adopts
	// the worker.
	Stop(grace time.Duration, late bool) error
	// Forget releases what the driver keeps for a worker. The agent calls it once the
	// control plane has acknowledged the worker's end.
	Forget()
}

// Spec is the worker that a driver starts.
type Spec struct {
	Executor string
	Worker   model.Worker
	Epoch    int64
	// UID is the uid of the reservation.
	UID     string
	Command string
	Args    []string
	Env     map[string]string
	Payload []byte
	// Reservation is the name of the worker's reservation, and Workers is the number of workers
	// of its gang, or 0 if the control plane is older than the field.
	Reservation string `json:",omitempty"`
	Workers     int32  `json:",omitzero"`
	// Volume is the volume on which the worker runs.
	Volume Volume `json:",omitzero"`
	// Members has the members of the gang in JSON, for a driver with [Gangs]. It is nil if they
	// are not known.
	Members []byte `json:"-"`
	// Grace is the time between the signal to stop and the kill. It applies to stop requests
	// without a grace period.
	Grace time.Duration
	// StopSignal is the signal that asks the worker to stop. It is empty for SIGTERM.
	StopSignal model.Signal `json:",omitempty"`
	// Readiness decides when the worker is RUNNING.
	Readiness model.Readiness `json:",omitzero"`
	// StartLimit is how long after Begun the agent stops the worker if it is not RUNNING yet.
	// It is 0 for no limit.
	StartLimit time.Duration `json:",omitzero"`
	// Begun is the time at which the agent began the start.
	Begun time.Time `json:",omitzero"`

	// ready is the agent's function for Ready.
	ready func()
	// interrupted is the channel of Interrupted.
	interrupted <-chan struct{}
	// cell is set if the executor is a cell. Its driver calls Ready whatever the readiness is,
	// and the cell enforces StartLimit.
	cell bool
}

// Ready reports that the worker is ready: with readiness REPORTED it is RUNNING from now
// on. A [Function] calls it once it has loaded what it needs. Any other call has no effect.
func (s Spec) Ready() {
	if s.ready != nil {
		s.ready()
	}
}

// Interrupted returns a channel that is closed when the worker must be stopped, or the agent
// closes, before Start has returned: Stop needs the Handle. It is nil for the spec of an adopted
// worker.
func (s Spec) Interrupted() <-chan struct{} { return s.interrupted }

// OnInterrupted returns the spec with a channel that Interrupted returns. It is for tests of
// drivers, like OnReady.
func (s Spec) OnInterrupted(c <-chan struct{}) Spec {
	s.interrupted = c
	return s
}

// OnReady returns the spec with a function that Ready calls. The agent sets its own; OnReady is
// for tests of drivers.
func (s Spec) OnReady(f func()) Spec {
	s.ready = f
	return s
}

// loads reports whether the worker is RUNNING only once it reports that it is ready.
func (s Spec) loads() bool { return s.cell || s.Readiness == model.ReadyReported }

func (s Spec) identity() identity { return identity{s.Worker, s.Epoch} }

// Adopted is a worker that outlived its agent.
type Adopted struct {
	Spec   Spec
	Handle Handle
	Since  time.Time
	// Ready is set if the worker has reported that it is ready.
	Ready bool
	// Ended is set if the worker of a cell has ended. The agent ignores it if the control plane
	// has acknowledged the end to an earlier agent.
	Ended bool
	// Stopping is set if an earlier agent signalled the worker to stop. Late is set if it did
	// so because the worker was not ready in time.
	Stopping, Late bool
	// HasMembers is set if the worker has the members of its gang; see [Gangs].
	HasMembers bool
}

// Exit describes how a worker ended.
type Exit struct {
	// Code is the exit code of the process, or 128 + n if signal n killed the process. It is
	// nil if nobody observed the end.
	Code *int32
	// Signal is the number of the signal that killed the process, or 0.
	Signal int32
	// Stopped is set if the worker was signalled to stop before it ended.
	Stopped bool
	// Late is set if that was because the worker was not RUNNING in time. Agent sets it, not
	// the driver.
	Late bool
	// BadTask is set if the worker could not be started because of its task, such as a program
	// that does not exist.
	BadTask bool
	// Reason, if set, is the reason of an end that Code does not show, such as
	// CELL_WORKER_LOST. The worker is FAILED then.
	Reason fault.Reason
	// Problem describes a failure for people. It is empty if there was none.
	Problem string
}

func (x Exit) state() model.WorkerState {
	switch {
	case x.Late, x.Reason != "":
		return model.WorkerFailed
	case x.Stopped:
		return model.WorkerEvicted
	case x.Code != nil && *x.Code == 0:
		return model.WorkerCompleted
	}
	return model.WorkerFailed
}

// reason returns the reason of the end, or "" if the exit code shows it.
func (x Exit) reason() fault.Reason {
	if x.Late {
		return fault.ReasonStartTimeout
	}
	return x.Reason
}
