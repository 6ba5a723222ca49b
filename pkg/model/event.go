package model

import (
	"time"

	"berth.dev/api/fault"
)

// EventKind is what a job event tells of.
type EventKind uint8

// The kinds; the numbers are those of the wire.
const (
	EventReservationQueued    EventKind = 1
	EventReservationLeased    EventKind = 2
	EventReservationAssigned  EventKind = 3
	EventReservationRequeued  EventKind = 4
	EventReservationCancelled EventKind = 5
	EventReservationExpired   EventKind = 6
	EventReservationReplaced  EventKind = 7
	EventReservationCompleted EventKind = 8
	EventReservationFailed    EventKind = 9
	EventReservationReordered EventKind = 10
	EventWorkerAssigned       EventKind = 20
	EventWorkerStarted        EventKind = 21
	EventWorkerRunning        EventKind = 22
	EventWorkerCompleted      EventKind = 23
	EventWorkerFailed         EventKind = 24
	EventWorkerLost           EventKind = 25
	EventWorkerRequeued       EventKind = 26
	EventWorkerEvicting       EventKind = 27
	EventWorkerEvicted        EventKind = 28
	EventExecutorDisabled     EventKind = 40
)

// MaxEventWorkers is how many workers one event names at most; larger batches
// are told of by count.
const MaxEventWorkers = 256

// JobEvent is one entry of a job's stream. It is stored in the transaction of
// the change it tells of; its cursor is the revision of that and the index in
// it.
type JobEvent struct {
	Kind    EventKind
	Time    time.Time
	Key     Key
	UID     string
	Workers []EventWorker
	// Count is the number of workers, those left out of Workers included.
	Count   int32
	Reason  fault.Reason
	Message string
	// Trace is the reservation's; its id is stored.
	Trace Trace
	// Since is when the step that ends with this event began, and Epoch the
	// reservation's, 0 where it is not durable yet. They are for the trace, and
	// not stored.
	Since time.Time
	Epoch int64
}

// EventWorker is what an event says of one worker.
type EventWorker struct {
	ID       WorkerID
	Executor string
	State    WorkerState
	Reason   fault.Reason
	ExitCode *int32
	// Message is what its executor said last, where that was an error.
	Message string
}
