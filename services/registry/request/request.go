package request

import (
	"time"

	"berth.dev/pkg/model"
)

// The requests are those in this file and model.Upsert. In each, the optional RequestID
// makes a repeat return the first result.

// Cancel cancels every living version of a key. The call is answered once none of the
// workers will be started any more. Cancelling an unknown key succeeds.
type Cancel struct {
	Key       model.Key
	RequestID string
	// IfEpoch, if set, restricts the call to the living version of this epoch and its
	// descendants.
	IfEpoch int64
	// Grace, if set, is the longest time that the workers have to end after their termination
	// signal.
	Grace *time.Duration
}

// Bind starts the workers of the held version of a key, on the executors that it holds. If cells hold
// for the version, it also chooses the cell.
type Bind struct {
	Key       model.Key
	RequestID string
	// IfEpoch, if set, restricts the call to the held version of this epoch.
	IfEpoch int64
	// Task replaces the task of the version; nil keeps it.
	Task *model.Task
	// Pool is the ID of the cell to choose; empty for the one with the highest rating.
	Pool string
	// KeepHeld only chooses the cell: the version stays held.
	KeepHeld bool
}

// CancelJob cancels every living reservation of a job. The call is answered like Cancel.
type CancelJob struct {
	Job       string
	RequestID string
	Grace     *time.Duration
}

// CancelWorkers removes single workers of a stage, whatever the name and the state of
// their reservations. The call may name a requeued worker by one of its earlier numbers.
// It is answered once none of the workers will be started any more. Unknown workers are
// ignored.
type CancelWorkers struct {
	Job, Stage string
	Workers    []model.WorkerID
	RequestID  string
	Grace      *time.Duration
}

// Flush cancels all queued reservations of a job or of a group, with or without a lease.
// Held and dispatched reservations stay. For an unknown job or group the flush cancels
// nothing and succeeds.
type Flush struct {
	// Exactly one of the two is set: the name of a job or the ID of a group.
	Job, Group string
	// RequestID is not remembered if the flush found no reservation.
	RequestID string
}

// Scope returns the key, stage or job that a request may change. An empty scope means
// all.
func Scope(request any) model.Key {
	switch r := request.(type) {
	case model.Upsert:
		return r.Key
	case Cancel:
		return r.Key
	case Bind:
		return r.Key
	case CancelJob:
		return model.Key{Job: r.Job}
	case CancelWorkers:
		return model.Key{Job: r.Job, Stage: r.Stage}
	case Flush:
		return model.Key{Job: r.Job}
	}
	return model.Key{}
}
