package model

import (
	"time"

	"berth.dev/api/fault"
)

// EventKind is the kind of a job event.
type EventKind uint8

// The kinds of job events. The numbers are equal to the numbers in the API.
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
	EventReservationOffered   EventKind = 12
	EventReservationHeld      EventKind = 13
	EventReservationBound     EventKind = 14
	EventReservationWithdrawn EventKind = 15
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
	EventVolumeReady          EventKind = 60
	EventVolumeMoved          EventKind = 61
	EventVolumeLost           EventKind = 62
	EventVolumeAbandoned      EventKind = 63
	EventVolumeDestroyed      EventKind = 64
)

// MaxEventWorkers is the maximum number of workers that one event lists. An event about
// more workers lists none or only some of them, and contains their count.
const MaxEventWorkers = 256

// JobEvent is one event in the stream of a job. The transaction that stores the change
// also stores the event. The cursor of an event is the revision of that transaction and
// the index of the event in it.
type JobEvent struct {
	Kind    EventKind
	Time    time.Time
	Key     Key
	UID     string
	Workers []EventWorker
	// Count is the number of workers, including workers that Workers does not list.
	Count   int32
	Reason  fault.Reason
	Message string
	// Trace is the trace of the reservation. Only its ID is stored.
	Trace Trace
	// Since is the time at which the step that this event ends began. Epoch is the
	// reservation's epoch, or 0 if the reservation is not durable yet. Both fields are for
	// the trace and are not stored.
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
	// Message is the last error that the worker's executor reported for the worker.
	Message string
}
