// Package policy keeps every executor that a request disables out of allocation until the
// request expires or is undone, also if the executor registers later or the leader
// changes. It decides requests to disable, to drain and to claim executors, and which
// pools executors are in.
//
//	Disable, Enable, Drain, Claim ──▶ Requests ──▶ Effect: request, mark on the executor
//	Put, Delete ────────────────────▶ Pools    ──▶ Effect: pool
//	records (Set, Enter, Leave) ────▶          ──▶ the class or the executor is closed
//	                                               or opened in the index
//
// It promises:
//
//   - A request also applies to executors that register later or return. If several
//     requests apply to an executor, each of them alone keeps it out of allocation.
//   - A request by attributes closes the classes that it selects and moves no executor in
//     the index.
//   - A claim picks executors without workers and disables them in the same effect, so
//     nothing is allocated on them in between.
//   - A drain is a request for one executor. The same effect marks the executor's record,
//     and because of that mark the assigner evicts the workers.
//   - A repeat of a call finds the record of its request and changes nothing, until
//     [model.KeepDisable] after the request has ended. Another call with the same ID is
//     rejected.
//   - Each job with workers on a disabled executor gets one EXECUTOR_DISABLED event for
//     each request, executor and lease, even if the leader changes in between.
//   - The number of requests, and of executors that they name, is bounded.
//   - No decision depends on I/O, a clock, random numbers or the order of a map.
//
// A request never excludes an executor directly. [Requests.Disable], Claim and Drain only
// emit an effect with the record of the request, through Owner.Decide. The owner applies
// the effect to its records and calls [Requests.Set]. Set calls apply (requests.go), and
// apply closes the classes that the request selects or enters the request at the
// executors that it names. So a request takes the same path whether this replica decided
// it, the view showed it, or a decision was undone.
//
// [Requests] and [Pools] hold what follows from the records. Their owner, the inventory,
// keeps the records and makes effects durable. Read requests.go first, then disable.go,
// drain.go, claim.go and expire.go for the decisions, notify.go for the events, and
// pools.go.
package policy
