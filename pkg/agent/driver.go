package agent

import (
	"time"

	"berth.dev/pkg/model"
)

// Driver starts and stops workers. Process, Functions and Simulated are the
// drivers of this package. A driver is safe for concurrent use.
type Driver interface {
	// Start starts a worker and returns once it runs. An error promises that it
	// does not run and will not; the worker may then be started again. ended is
	// called once, when the worker is gone, from any goroutine, perhaps before
	// Start returns; never when Start fails.
	Start(spec Spec, ended func(Exit)) (Handle, error)
	// Adopt finds the workers of an earlier agent that were not forgotten. Each
	// of them counts as running until ended is called for it, at once for those
	// that ended meanwhile. The agent adopts before it starts anything.
	Adopt(ended func(Spec, Exit)) ([]Adopted, error)
	// Close stops watching. The workers go on. No ended is called after it.
	Close() error
}

// Handle is a worker that a driver started or adopted.
type Handle interface {
	// Stop tells the worker to end, and has it killed after the grace. It returns
	// once the order is given, and may be repeated; the shortest grace counts.
	Stop(grace time.Duration) error
	// Forget lets go of a worker whose end is known to the control plane.
	Forget()
}

// Spec is what a driver is to start.
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
	// Grace is the time between the signal to end and the kill, for stops that
	// do not say.
	Grace time.Duration
}

func (s Spec) identity() identity { return identity{s.Worker, s.Epoch} }

// Adopted is a worker that outlived its agent.
type Adopted struct {
	Spec   Spec
	Handle Handle
	Since  time.Time
	// Stopping: it had been told to end.
	Stopping bool
}

// Exit is how a worker ended.
type Exit struct {
	// Code is that of the process; 128 + n when signal n ended it. It is nil
	// when nobody saw it end.
	Code *int32
	// Signal is the number of the signal that ended it, 0 for none.
	Signal int32
	// Stopped: it had been told to end before it did.
	Stopped bool
	// Problem is a sentence about what went wrong, empty when nothing did.
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
