package model

import "berth.dev/api/fault"

// Dispatch is the call by which the registry gives leases to the assigner. The assigner
// answers a DispatchOutcome for each task, in order. It refuses a term lower than one
// that it has seen with LOWER_TERM. It refuses revisions that its view does not reach
// in time with UNAVAILABLE; that call may be repeated.
type Dispatch struct {
	// Term is that of the registry's leader.
	Term  int64
	Tasks []DispatchTask
}

// From returns the service that dispatches, and its term.
func (d Dispatch) From() (service string, term int64) { return ServiceRegistry, d.Term }

// Known returns the newest revision in the tasks.
func (d Dispatch) Known() int64 {
	var newest int64
	for _, task := range d.Tasks {
		newest = max(newest, task.Mod, task.Lease)
	}
	return newest
}

// DispatchTask names a reservation and its lease, each at the revision that the
// registry decided on.
type DispatchTask struct {
	Key Key
	UID string
	// Mod is the reservation's modification revision, Lease the create revision of the
	// lease's first chunk.
	Mod, Lease int64
	Trace      Trace
}

// DispatchOutcome is the result for one task.
type DispatchOutcome struct {
	UID string
	// Accepted: the task is durable. Otherwise the assigner refuses it for Reason.
	Accepted bool
	Reason   fault.Reason
}
