package model

import (
	"time"

	"berth.dev/api/fault"
)

// WorkerState is the state of an assignment.
type WorkerState uint8

// The states. ASSIGNED: the start request is durable. STARTING: the executor has
// acknowledged it. EVICT: the stop request is durable. EVICTING: the executor has
// acknowledged that. The rest are ends: the worker does not run and is never started
// again.
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

// Terminal reports whether the state is an end.
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
// States are skipped if an executor reports several at once. If a worker ends on its
// own before it is stopped, that end counts. EVICTED without EVICT means that an
// executor stopped a worker on its own.
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

// TaskHeader is the record of an assignment task: the assignments of one lease.
type TaskHeader struct {
	UID     string
	Key     Key
	Epoch   int64
	Chunks  int32
	Workers int32
	// Complete is set with the last chunk. No start request is sent before.
	Complete bool
	// Lease is the create revision of the lease that was dispatched.
	Lease     int64
	CreatedAt time.Time
	// Stopping is set once the reservation's cancellation is durable. From then on no
	// start request is sent.
	Stopping bool
	// Ended is set when every worker has ended.
	Ended bool
	// Withdrawn is set if a batch with StartTogether cannot start, for Reason and
	// Message. All its workers are stopped. The registry queues it again once it has
	// ended and its lease was deleted.
	Withdrawn bool
	Reason    fault.Reason
	Message   string
	// Trace is the trace of the reservation.
	Trace Trace
}

// TaskChunk is the record of up to TaskChunkSize workers of a task.
type TaskChunk struct {
	UID     string
	Chunk   int32
	Workers []TaskWorker
}

// TaskWorker is one assignment.
type TaskWorker struct {
	ID        WorkerID
	Ordinal   uint32
	State     WorkerState
	Since     time.Time
	Attempts  int32
	LastError string
	Reason    fault.Reason
	// ExitCode is the exit code of the process, once it has ended; nil without one.
	ExitCode *int32
	// Incarnation is the executor's incarnation when it acknowledged the start request,
	// and Sequence that of the acknowledgement. Only a later report that lacks the
	// worker proves its absence.
	Incarnation int64
	Sequence    int64
	// Requeue is set on a worker that the registry queues again: one that is FAILED
	// because it could not be started, or LOST with an executor that had not promised
	// not to start it. It is done when the stage has a higher number of the worker
	// index.
	Requeue bool
	// Cleared is the request by which an operator declared that the worker, whose stop
	// was not confirmed, does not run; empty for any other worker.
	Cleared string
}
