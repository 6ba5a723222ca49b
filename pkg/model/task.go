package model

import (
	"cmp"
	"strings"
	"time"
	"unique"

	"berth.dev/api/fault"
)

// WorkerState is the state of an assignment.
type WorkerState uint8

// The states of an assignment. ASSIGNED: the start request is durable. STARTING: the
// executor has acknowledged the start request. EVICT: the stop request is durable.
// EVICTING: the executor has acknowledged the stop request. COMPLETED and the states
// after it are final: the worker does not run and is never started again.
const (
	WorkerUnset WorkerState = iota
	WorkerAssigned
	WorkerStarting
	WorkerRunning
	WorkerEvict
	WorkerEvicting
	WorkerCompleted
	WorkerFailed
	WorkerLost
	WorkerEvicted
)

var workerStateNames = [...]string{"", "ASSIGNED", "STARTING", "RUNNING", "EVICT", "EVICTING", "COMPLETED", "FAILED",
	"LOST", "EVICTED"}

func (s WorkerState) String() string { return workerStateNames[s] }

// Terminal reports whether the state is final.
func (s WorkerState) Terminal() bool { return s >= WorkerCompleted }

// Reportable reports whether an executor may report the state of a worker.
func (s WorkerState) Reportable() bool {
	switch s {
	case WorkerStarting, WorkerRunning, WorkerEvicting, WorkerCompleted, WorkerFailed, WorkerEvicted:
		return true
	}
	return false
}

// MayBecome reports whether the assigner may write the transition from s to next.
//
//	ASSIGNED ─▶ STARTING ─▶ RUNNING ─▶ COMPLETED, FAILED, LOST
//	    └──────────┴───────────┴─▶ EVICT ─▶ EVICTING ─▶ EVICTED
//
// A transition skips states if the executor passed through several states before it
// reported. If a worker ends by itself before it is stopped, it gets the state of that
// end. EVICTED without EVICT means that the executor stopped the worker without a stop
// request.
func (s WorkerState) MayBecome(next WorkerState) bool {
	switch s {
	case WorkerAssigned, WorkerStarting, WorkerRunning:
		return next > s && next != WorkerEvicting
	case WorkerEvict, WorkerEvicting:
		return next > s
	}
	return false
}

// TaskChunkSize is the maximum number of workers in one chunk of a task.
const TaskChunkSize = 256

// TaskHeader is the record of a task. A task contains the assignments of one lease.
type TaskHeader struct {
	UID     string
	Key     Key
	Epoch   int64
	Chunks  int32
	Workers int32
	// Complete is set when the last chunk is stored. Before that, the assigner sends no
	// start request.
	Complete bool
	// Lease is the create revision of the lease that was dispatched.
	Lease     int64
	CreatedAt time.Time
	// Stopping is set once the reservation's cancellation is durable. From then on the
	// assigner sends no start request.
	Stopping bool
	// Ended is set when every worker has ended.
	Ended bool
	// Withdrawn is set if a batch with StartTogether cannot start, or if a gang with
	// OnFailedRestart restarts. Reason and Message say why. The assigner stops all workers of the task.
	// The registry queues the batch again once the task has ended and its lease was deleted.
	Withdrawn bool
	Reason    fault.Reason
	Message   string
	// Trace is the trace of the reservation.
	Trace Trace
}

// Restarts reports whether the task was withdrawn because its gang restarts. Then the tasks of all
// versions of the reservation are.
func (h *TaskHeader) Restarts() bool { return h.Withdrawn && h.Reason == fault.ReasonGangRestarted }

// TaskChunk is the record of up to TaskChunkSize workers of a task.
type TaskChunk struct {
	UID     string
	Chunk   int32
	Workers []TaskWorker
}

// TaskWorker is one assignment.
type TaskWorker struct {
	ID      WorkerID
	Ordinal uint32
	State   WorkerState
	// Requeue is set on a worker that the registry must queue again: it is FAILED because it
	// could not be started, or LOST with its executor, which had not promised never to start
	// it, or its reservation restarts or replaces it.
	Requeue bool
	// BadTask is set if the last start failed because of the task itself, such as a program that
	// does not exist. Such a failure says nothing about the executor.
	BadTask bool
	// Unconfirmed is set on a LOST worker whose executor may still start or run it, because it has
	// not answered; see UnansweredSince. Its share of the lease stays used until the executor
	// confirms the end or is LOST, or an operator clears the quarantine.
	Unconfirmed bool
	// NeverStarted is set on a LOST worker that was Unconfirmed, if its executor has confirmed that
	// it never started it: a volume of the worker has no data of it.
	NeverStarted bool
	Attempts     int32
	// Since is when the worker got its state.
	Since Instant
	// Later is the last worker of the index that descends from this one by requeues, once it has
	// ended and is not queued again. Its records are deleted before this one.
	Later LastWorker
	// LastError describes the last failure. After a refused start request, it begins with the
	// reason of the refusal.
	LastError Interned
	Reason    fault.Reason
	// ExitCode is the exit code of the process. It is nil until the process has ended, and
	// if the exit code is unknown.
	ExitCode *int32
	// Incarnation is the executor's incarnation when it acknowledged the start request.
	// Sequence is the sequence of the acknowledgement. Only a report that is later than both
	// and does not list the worker proves that the worker does not run.
	Incarnation int64
	Sequence    int64
	// RunningSince is when the worker became RUNNING, if its reservation has use for it; see
	// Spec.TracksRunning.
	RunningSince Instant
	// UnansweredSince is set while the executor has not answered the last request about a worker
	// that it has never acknowledged, or that must stop. It is when the first of these requests was
	// given up.
	UnansweredSince Instant
	// Cleared is the ID of the request by which an operator declared that the worker does
	// not run although its stop was not confirmed. It is empty for any other worker.
	Cleared Interned
	// Host is the host on which a worker in a cell runs, as its agent reports it. It is empty until
	// that is known, and for other workers. If Later is set, it is the host of that worker.
	Host Interned
}

// LastWorker is a worker that has ended, as the record of an earlier worker of its index has it. It is
// zero for none.
type LastWorker struct {
	// State is COMPLETED or FAILED, or LOST for a worker that was given up.
	State   WorkerState
	Number  int32
	Ordinal uint32
}

// Moved reports whether a worker has ended because an operator drained its executor, or because
// its executor was LOST, no longer had it, or stopped it without a request. The registry and the
// assigner share this predicate: a move is no failure, so no limit counts it and it delays nothing.
//
// A worker that could not be started did not move, even if its executor was LOST meanwhile. A
// worker that its cell lost has moved only if it was RUNNING, because a cell also loses the workers
// that it cannot start.
func (w *TaskWorker) Moved() bool {
	switch w.State {
	case WorkerLost:
		return !w.GaveUp() && w.Reason != fault.ReasonRoundsExhausted
	case WorkerEvicted:
		return w.Reason == fault.ReasonExecutorDraining || w.Reason == fault.ReasonStopped
	case WorkerFailed:
		return w.Reason == fault.ReasonExecutorDraining || w.lostByCell()
	}
	return false
}

// LostHost reports whether a worker was lost with its host: it is LOST with its executor, or its cell
// lost it while it was RUNNING.
func (w *TaskWorker) LostHost() bool { return w.State == WorkerLost || w.lostByCell() }

func (w *TaskWorker) lostByCell() bool {
	return w.State == WorkerFailed && w.Reason == fault.ReasonCellWorkerLost && !w.RunningSince.IsZero()
}

// GaveUp reports whether a worker was given up: no attempt has started it, so it ends as soon as
// its executor cannot start it any more.
func (w *TaskWorker) GaveUp() bool {
	return w.Reason == fault.ReasonAttemptsExhausted || w.Reason == fault.ReasonExecutorRefuses
}

// RefusedFor returns the reason with which the executor refused the last start request, with which the
// last error then begins. Without a refusal, the result is no reason that an executor gives.
func (w *TaskWorker) RefusedFor() fault.Reason {
	reason, _, _ := strings.Cut(w.LastError.String(), ":")
	return fault.Reason(reason)
}

// Stable reports whether a worker was RUNNING for so long before its last change that an end
// counts as the first failure.
func (w *TaskWorker) Stable() bool { return w.ran(StableAfter) }

// Outlived reports whether a worker was RUNNING for its lifetime before its last change.
func (w *TaskWorker) Outlived(l Lifetime) bool { return l.From == FromLive && w.ran(l.For) }

func (w *TaskWorker) ran(least time.Duration) bool {
	return !w.RunningSince.IsZero() && w.Since.Sub(w.RunningSince) >= least
}

// InTime orders workers by when they reached their state, and then by index. The first failure
// in time is the cause that messages name: the other workers of a gang often fail because of it.
func InTime(a, b TaskWorker) int { return cmp.Or(cmp.Compare(a.Since, b.Since), a.ID.Compare(b.ID)) }

// Occupies reports whether the worker may run, so that its share of the lease is used.
func (w *TaskWorker) Occupies() bool { return !w.State.Terminal() || w.Unconfirmed }

// Interned is a comparable string in the memory of a pointer. Every change of a worker copies the
// up to TaskChunkSize workers of its chunk, and few workers have such a string, or many the same.
type Interned struct{ handle unique.Handle[string] }

// Intern returns a string as an Interned. The zero value is the empty string.
func Intern(s string) Interned {
	if s == "" {
		return Interned{}
	}
	return Interned{unique.Make(s)}
}

func (i Interned) String() string {
	if i == (Interned{}) {
		return ""
	}
	return i.handle.Value()
}

// IsEmpty reports whether it is the empty string.
func (i Interned) IsEmpty() bool { return i == Interned{} }

// Equal reports whether both are the same string.
func (i Interned) Equal(o Interned) bool { return i == o }

// Instant is a time in nanoseconds since 1970, or 0 for none. It needs a third of the memory
// of a time.Time. Every change of a worker copies the up to TaskChunkSize workers of its chunk.
type Instant int64

// InstantOf returns the Instant of a time.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time returns the time in UTC, or the zero time for none.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// IsZero reports whether there is no time.
func (i Instant) IsZero() bool { return i == 0 }

// Sub returns the duration between two times, of which both are set.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }
