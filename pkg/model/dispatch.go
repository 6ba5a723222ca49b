package model

import "berth.dev/api/fault"

// Dispatch is the call by which the registry gives leases to the assigner. The assigner
// answers with a DispatchOutcome for each task, in order. If the term is lower than a
// term that the assigner has seen, it returns LOWER_TERM. If its view does not reach the
// revisions in the call in time, it returns UNAVAILABLE; the registry may repeat that
// call.
type Dispatch struct {
	// Term is the term of the registry's leader.
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

// DispatchTask names a reservation and its lease, each with the revision on which the
// registry decided.
type DispatchTask struct {
	Key Key
	UID string
	// Mod is the mod revision of the reservation. Lease is the create revision of the first
	// chunk of the lease.
	Mod, Lease int64
	Trace      Trace
}

// DispatchOutcome is the result for one task.
type DispatchOutcome struct {
	UID string
	// Accepted is set if the task is durable. Otherwise the assigner refused the task, and
	// Reason says why.
	Accepted bool
	Reason   fault.Reason
}
