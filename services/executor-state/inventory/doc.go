// Package inventory is the functional core of executor-state: which executors
// there are, what they have free, and which batch is granted which of them.
//
//	Register, Announce ──▶ ┌───────────┐ ──▶ Effect: executor, presence
//	Pass ────────────────▶ │ inventory │ ──▶ Effect: lease, all workers or none
//	Changed (the view) ──▶ └───────────┘ ──▶ Effect: worker's share given back,
//	                                          orphan swept, executor LOST
//
// It promises:
//
//   - Σ used ≤ capacity, for every executor and resource: a lease is granted
//     out of what is free, and an executor that registers again with less than
//     it has given away is offered to nobody until it has room again.
//   - A strict lease covers all workers of its reservation or none. It is one
//     [model.Effect] however many workers it has, and it compares that the
//     reservation is still what was decided on and that the registry that cut
//     the pass still leads. The same uid asked twice gives the same lease.
//   - Capacity is used until the assigner says that the worker has ended, or
//     until a lease turns out to be nobody's. Nothing here frees it by a clock.
//   - The same records and inputs give the same answers: there is no I/O, no
//     clock, no randomness and no map order in any decision.
//
// A [Core] is a [model.Core]: one goroutine owns it. Memory is records and
// indexes over them, written by one function, [Core.set], whether a record
// comes from the view, from a decision or from taking a decision back.
package inventory
