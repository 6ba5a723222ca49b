package agent

import (
	"time"

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
	Start(spec Spec, ended func(Exit)) (Handle, error)
	// Adopt returns the workers of an earlier agent for which Forget was not called. Each of
	// them counts as running until the driver calls ended for it. If a worker ended in the
	// meantime, the driver calls ended at once. The agent calls Adopt before it starts a
	// worker.
	Adopt(ended func(Spec, Exit)) ([]Adopted, error)
	// Close stops watching the workers; the workers keep running. The driver does not call
	// ended after Close.
	Close() error
}

// Handle is a worker that a driver started or adopted.
type Handle interface {
	// Stop signals the worker to stop and returns without waiting for its end. If the worker
	// still runs after the grace period, it is killed. Stop may be called again; the
	// shortest grace period counts.
	Stop(grace time.Duration) error
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
	// Grace is the time between the signal to stop and the kill. It applies to stop requests
	// without a grace period.
	Grace time.Duration
}

func (s Spec) identity() identity { return identity{s.Worker, s.Epoch} }

// Adopted is a worker that outlived its agent.
type Adopted struct {
	Spec   Spec
	Handle Handle
	Since  time.Time
	// Stopping is set if an earlier agent signalled the worker to stop.
	Stopping bool
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
	// Problem describes a failure for people. It is empty if there was none.
	Problem string
}

func (x Exit) state() model.WorkerState {
	switch {
	case x.Stopped:
		return model.WorkerEvicted
	case x.Code != nil && *x.Code == 0:
		return model.WorkerCompleted
	}
	return model.WorkerFailed
}
