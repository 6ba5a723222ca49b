// Package policy decides which executors operators and autoscalers take out of
// allocation, and which pools executors are in.
//
//	Disable, Enable, Drain, Claim ──▶ Requests ──▶ Effect: request, mark on the executor
//	Put, Delete ────────────────────▶ Pools    ──▶ Effect: pool
//	records (Set, Enter, Leave) ────▶          ──▶ the class or the executor is closed
//	                                               or opened in the index
//
// It promises:
//
//   - A request applies until it expires or is undone, to executors that register
//     later or return, too. If several requests apply to an executor, each of them
//     alone keeps it out of allocation.
//   - A request by attributes closes the classes that it selects and moves no executor.
//   - A claim picks executors without workers and disables them in the same effect, so
//     that nothing is allocated on them in between.
//   - A drain is a request for one executor that also marks the executor's record in the
//     same effect; the assigner evicts by that mark.
//   - A repeat of a call finds the record of its request and changes nothing, also for
//     [model.KeepDisable] after the request has ended. Another call with the same ID is
//     rejected.
//   - Each job with workers on a disabled executor gets one EXECUTOR_DISABLED event for
//     each request, executor and lease, also if the leader changes in between.
//   - The number of requests, and of executors that they name, is bounded.
//   - There is no I/O, no clock, no randomness and no map order in any decision.
//
// [Requests] and [Pools] hold what follows from the records; their owner, the inventory,
// keeps the records and makes effects durable. Read requests.go first, then disable.go,
// drain.go, claim.go and expire.go for the decisions, notify.go for the events, and
// pools.go.
package policy
