package request

import "berth.dev/pkg/model"

// Besides the requests in this file there is model.Upsert. In each, the optional
// RequestID makes a repeat return the first result.

// Cancel cancels every living version of a key. It is answered once none of its
// workers will be started any more. Cancelling an unknown key succeeds.
type Cancel struct {
	Key       model.Key
	RequestID string
	// IfEpoch, if set, lets the call cancel only the living version of this epoch.
	IfEpoch int64
}

// CancelJob cancels every living reservation of a job. It is answered like Cancel.
type CancelJob struct {
	Job       string
	RequestID string
}

// CancelWorkers removes single workers of a stage, whatever the name and the state of
// their reservations. A worker that was requeued may be named by one of its earlier
// numbers. The call is answered once none of the workers will be started any more.
// Unknown workers are ignored.
type CancelWorkers struct {
	Job, Stage string
	Workers    []model.WorkerID
	RequestID  string
}

// Flush cancels all queued reservations of a job or of a group, with a lease or
// without one. Dispatched reservations stay. An unknown job or group has none queued.
type Flush struct {
	// Job, or the ID of a group: exactly one of the two.
	Job, Group string
	// RequestID is not remembered if the flush found no reservation.
	RequestID string
}

// Scope returns the key, stage or job that a request may change; all if it is empty.
func Scope(request any) model.Key {
	switch r := request.(type) {
	case model.Upsert:
		return r.Key
	case Cancel:
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
