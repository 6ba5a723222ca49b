package queue

import "berth.dev/pkg/model"

// Edge is a row of the table of state transitions of a version.
type Edge struct {
	// From is unset for a new version.
	From, To model.State
	// Event is the event that the same effect emits, or 0 for none.
	Event model.EventKind
	// When is the condition of the transition.
	When string
}

// Edges has every transition of a stored state. LEASING, ASSIGNING and HELD are derived and have no
// row. A version that waits for its NotBefore enters its queue without a transition.
var Edges = []Edge{
	{model.StateUnset, model.Queued, model.EventReservationQueued,
		"requested; or the rest of a version that was split or whose workers were cancelled; or the assigner refused the lease of its predecessor, or its hold was withdrawn"},
	{model.StateUnset, model.Queued, model.EventReservationRequeued,
		"a worker is restarted or replaced, or could not be started; or a gang could not start together or restarts"},

	{model.Queued, model.Active, model.EventReservationAssigned, "the assigner has stored the task"},
	{model.Queued, model.Cancelling, 0,
		"cancelled, or its `expireAt` or `lifetime` has passed, or workers have decided the end of the reservation, while the registry dispatches it"},
	{model.Queued, model.Cancelled, model.EventReservationCancelled, "cancelled or flushed, or a target size was lowered, or workers have decided the end of the reservation"},
	{model.Queued, model.Expired, model.EventReservationExpired,
		"its `expireAt`, `lifetime`, `queueTimeout` or `holdTimeout` has passed, and it has no task"},
	{model.Queued, model.Replaced, model.EventReservationReplaced,
		"a newer version replaces it, or the assigner refused its lease, or its gang restarts"},
	{model.Queued, model.Replaced, model.EventReservationWithdrawn, "held, and one of its executors is LOST or draining"},

	{model.Active, model.Cancelling, 0,
		"cancelled, or its `expireAt` or `lifetime` has passed, or its workers have decided its end"},
	{model.Active, model.Completed, model.EventReservationCompleted, "all workers have ended"},
	{model.Active, model.Failed, model.EventReservationFailed,
		"all workers have ended, and none could be started or restarted; or the gang has no round left"},
	{model.Active, model.Replaced, model.EventReservationReplaced, "the gang could not start together, or restarts"},
	{model.Active, model.Cancelled, model.EventReservationCancelled,
		"the gang could not start together or restarts, and all its workers were cancelled meanwhile"},

	{model.Cancelling, model.Cancelled, model.EventReservationCancelled, "it was cancelled, and all workers have ended"},
	{model.Cancelling, model.Failed, model.EventReservationFailed,
		"a worker failed with which the reservation fails, and all workers have ended"},
	{model.Cancelling, model.Completed, model.EventReservationCompleted,
		"the workers of `completesWith` have ended, and so have all others"},
	{model.Cancelling, model.Expired, model.EventReservationExpired, "it has expired, and all workers have ended"},
}
