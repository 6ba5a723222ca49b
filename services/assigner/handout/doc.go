// Package handout is the assigner's core: it hands leases out to executors and
// follows every worker to its end. It has no clock, no I/O, no goroutine and no
// lock; one goroutine owns a Core and calls Step.
//
//	registry ──Create──▶ ┌─────────┐ ──Submit, Stop──▶ agents
//	agents ───Report───▶ │ handout │ ◀──SubmitDone, StopDone──┘
//	view ────Changed───▶ └─────────┘ ──Effect──▶ assigner/tasks/…
//
// What it promises:
//
//   - A task is created once, from the reservation and the lease as they were
//     decided on, and submitted only when all of it is durable.
//   - A worker's state moves by [model.WorkerState.MayBecome] alone, and only on
//     word about that very worker: same uid, seat, epoch and executor.
//   - An executor is asked at most maxAttempts times in total to start a worker;
//     an attempt that failed is durable before the next one is sent. (A change
//     of leader can repeat the one that was on its way.)
//   - Once a stop is durable, no submit is sent for that worker. A worker whose
//     executor may have been reached ends only when a stop is confirmed or the
//     executor is LOST, so that its capacity is never freed under it.
//   - What is in flight is bounded, in all and at each executor.
//
// Everything is derived from records: a successor that sees the same records
// does the same. In memory alone are the calls in flight, their back-off, and
// whether the outcome of an attempt was unknown, which a successor assumes.
//
// Reading order: event.go and action.go (the edge), core.go (one step),
// store.go (how memory changes), create.go, submit.go, stop.go, report.go (what
// is decided on word from outside), review.go (what is decided on sight of the
// view), order.go (what is sent when), edges.go (the states as a table).
package handout
