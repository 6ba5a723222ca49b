package model

import (
	"time"

	"berth.dev/api/fault"
)

// WorkerState is the state of an assignment.
type WorkerState uint8

// The states. ASSIGNED: the order to start is durable. STARTING: the executor
// has acknowledged it. EVICT: the order to stop is durable. EVICTING: the
// executor has acknowledged that. The rest are ends: the worker does not run
// and is never started again.
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

var workerStateNames = [...]string{"", "ASSIGNED", "STARTING", "RUNNING", "EVICT", "EVICTING", "COMPLETED", "FAILED", "LOST", "EVICTED"}

func (s WorkerState) String() string { return workerStateNames[s] }

// Terminal says whether the state is an end.
func (s WorkerState) Terminal() bool { return s >= WorkerCompleted }

// Reportable reports whether an executor may report the state of a worker.
func (s WorkerState) Reportable() bool {
	switch s {
	case WorkerStarting, WorkerRunning, WorkerEvicting, WorkerCompleted, WorkerFailed, WorkerEvicted:
		return true
	}
	return false
}

// MayBecome says whether the assigner may write the edge from s to next.
//
//	ASSIGNED ─▶ STARTING ─▶ RUNNING ─▶ COMPLETED, FAILED, LOST
//	    └──────────┴───────────┴─▶ EVICT ─▶ EVICTING ─▶ EVICTED
//
// States are skipped when an executor tells of several at once, and an end
// that the worker came to by itself stands even where it was to be stopped.
// EVICTED without EVICT is an executor that stopped a worker of its own accord.
func (s WorkerState) MayBecome(next WorkerState) bool {
	switch s {
	case WorkerAssigned, WorkerStarting, WorkerRunning:
		return next > s && next != WorkerEvicting
	case WorkerEvict, WorkerEvicting:
		return next > s
	}
	return false
}

// TaskChunkSize is how many workers one chunk of a task holds at most.
const TaskChunkSize = 256

// TaskHeader is the record of an assignment task: the assignments of one lease.
type TaskHeader struct {
	UID     string
	Key     Key
	Epoch   int64
	Chunks  int32
	Workers int32
	// Complete is set with the last chunk. Nothing is submitted before.
	Complete bool
	// Lease is the create revision of the lease that was dispatched.
	Lease     int64
	CreatedAt time.Time
	// Stopping is set once the reservation's cancel was taken: from then on no
	// submit is sent.
	Stopping bool
	// Ended is set when every worker has ended.
	Ended bool
	// Withdrawn is set when a batch that is to start together cannot, for
	// Reason and Message: all its workers are stopped, and the registry queues
	// it again once it has ended and its lease is gone.
	Withdrawn bool
	Reason    fault.Reason
	Message   string
	// Trace is the reservation's.
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
	// ExitCode is that of the process, once it has ended; nil without one.
	ExitCode *int32
	// Incarnation is the executor's when it acknowledged the order to start,
	// Sequence that of its acknowledgement: only a later report that lacks the
	// worker proves its absence.
	Incarnation int64
	Sequence    int64
	// Requeue is set, with FAILED, on a worker that could not be started and is
	// for the registry to queue again; with LOST where its executor was lost
	// before it had promised not to start it. It is done when the stage knows a
	// higher number of the worker index.
	Requeue bool
	// Cleared is the request by which an operator said that the worker, whose
	// stop was not confirmed, is gone; empty for any other.
	Cleared string
}
