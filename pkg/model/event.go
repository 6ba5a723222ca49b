package model

import (
	"time"

	"berth.dev/api/fault"
)

// EventKind is the kind of a job event.
type EventKind uint8

// The kinds; the numbers are those of the API.
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

// MaxEventWorkers is the maximum number of workers in one event; for more, the event
// only has their count.
const MaxEventWorkers = 256

// JobEvent is one entry of a job's stream. It is stored in the transaction of its
// change. Its cursor is the revision of that transaction and the index in it.
type JobEvent struct {
	Kind    EventKind
	Time    time.Time
	Key     Key
	UID     string
	Workers []EventWorker
	// Count is the number of workers, including those that Workers leaves out.
	Count   int32
	Reason  fault.Reason
	Message string
	// Trace is the trace of the reservation; the ID is stored.
	Trace Trace
	// Since is when the step that ends with this event began, and Epoch the
	// reservation's epoch, 0 if it is not durable yet. They are for the trace, and not
	// stored.
	Since time.Time
	Epoch int64
}

// EventWorker is one worker of an event.
type EventWorker struct {
	ID       WorkerID
	Executor string
	State    WorkerState
	Reason   fault.Reason
	ExitCode *int32
	// Message is the last message of its executor, if that was an error.
	Message string
}
