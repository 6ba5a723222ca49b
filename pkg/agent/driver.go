package agent

import (
	"time"

	"berth.dev/pkg/model"
)

// Driver starts and stops workers. Process, Functions and Simulated are the
// drivers of this package. A driver is safe for concurrent use.
type Driver interface {
	// Start starts a worker and returns once it runs. An error promises that it does not
	// run and will not; the start may then be repeated. The driver calls ended once, when
	// the worker has exited, from any goroutine, possibly before Start returns. It never
	// calls ended if Start fails.
	Start(spec Spec, ended func(Exit)) (Handle, error)
	// Adopt returns the workers of an earlier agent for which Forget was not called. Each
	// counts as running until the driver calls ended for it, at once if the worker ended
	// in the meantime. The agent calls Adopt before it starts a worker.
	Adopt(ended func(Spec, Exit)) ([]Adopted, error)
	// Close stops watching the workers, which keep running. The driver does not call ended
	// afterwards.
	Close() error
}

// Handle is a worker that a driver started or adopted.
type Handle interface {
	// Stop signals the worker to stop, and has it killed after the grace. It does not wait
	// for the end. It may be repeated; the shortest grace counts.
	Stop(grace time.Duration) error
	// Forget releases a worker whose end the control plane has acknowledged.
	Forget()
}

// Spec is the worker that a driver starts.
type Spec struct {
	Executor string
	Worker   model.Worker
	Epoch    int64
	// UID is that of the reservation.
	UID     string
	Command string
	Args    []string
	Env     map[string]string
	Payload []byte
	// Grace is the time between the signal to stop and the kill, for stop requests without
	// a grace.
	Grace time.Duration
}

func (s Spec) identity() identity { return identity{s.Worker, s.Epoch} }

// Adopted is a worker that outlived its agent.
type Adopted struct {
	Spec   Spec
	Handle Handle
	Since  time.Time
	// Stopping is set if the worker was signalled to stop.
	Stopping bool
}

// Exit describes how a worker ended.
type Exit struct {
	// Code is the exit code of the process, 128 + n if signal n killed it. It is nil if the
	// end was not observed.
	Code *int32
	// Signal is the number of the signal that killed the process, 0 without one.
	Signal int32
	// Stopped is set if the worker was signalled to stop before it ended.
	Stopped bool
	// Problem describes the failure for a person, "" without one.
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
