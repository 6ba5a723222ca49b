// Package dispatch is the assigner's core. It creates a task from each lease that the
// registry dispatches, requests agents to start its workers, and follows every worker
// until it ends. The core has no clock, I/O, goroutine or lock; one goroutine owns a
// [Core] and calls Step.
//
//	registry ──Dispatch──▶ ┌──────────┐ ──Submit, Stop──▶ agents
//	agents ────Report────▶ │ dispatch │ ◀──SubmitDone, StopDone──┘
//	view ────Changed─────▶ └──────────┘ ──Effect──▶ assigner/tasks/…
//
// The core promises:
//
//  1. A task is created once, from exactly the reservation and lease that the registry
//     decided on. Its workers are started only when the whole task is durable. Requests
//     in flight are limited, in all and for each executor, and have a deadline.
//  2. An executor gets at most maxAttempts requests to start a worker, with exponential
//     backoff and full jitter, each over a new connection. A failed attempt is durable
//     before the next one is sent. A change of leader can repeat the attempt in flight.
//  3. A worker without attempts left ends once its executor cannot start it any more.
//     The core marks it for the registry to queue again, if the job wants that and
//     rounds are left. A job event reports which of the two happened.
//  4. A gang (a batch with all-or-nothing start) is withdrawn if a worker cannot start,
//     or is lost before all have run: its header says why, and all its workers are
//     stopped. Once all have run, each worker is independent.
//  5. Once a stop is durable, the worker is not started any more. The end of a
//     reservation stops all its workers, a cancelled worker ID stops that worker, and
//     draining an executor stops all workers on it. A worker that its executor was never
//     asked to start ends at once.
//  6. A worker's state follows [model.WorkerState.MayBecome]; [Edges] lists who causes
//     each transition, and by when. A worker whose executor may have been reached ends
//     only when a stop is confirmed, the executor is LOST, or an operator clears it
//     ([Clear]), so that used capacity is never freed. Past its deadline it is a
//     [Finding].
//  7. A report or answer affects only the worker with the same uid, worker ID, epoch and
//     executor. The core reports the end of a worker, and never replaces one.
//
// Of the promises of executor-state, the core keeps the tenth:
//
//  10. [model.Reconcile] decides what a report means for each worker. The core stops a
//     worker that the executor should not have, an orphan, and has a [Finding] until its
//     end is confirmed. A report that contradicts a record frees no capacity: a worker
//     whose uid and worker ID are listed is not absent, and the end of another epoch,
//     name or executor does not end the recorded worker. Before the registry is ready, a
//     missing record means nothing: no orphan is stopped and nothing is deleted.
//
// The transcripts in testdata begin with the number of the promise that they show.
//
// Everything else is derived from records, so a successor with the same records decides
// the same. Only the calls in flight, their backoff, and whether an attempt without an
// answer may have reached its executor are in memory alone. A successor assumes that it
// has.
//
// Read the files in this order:
//
//  1. event.go, action.go: the inputs and outputs.
//  2. core.go: one step.
//  3. view.go, task.go, store.go: the records in memory. draft.go: from a decision to an
//     effect.
//  4. dispatch.go, start.go, stop.go, report.go, clear.go: decisions on inputs.
//  5. review.go, giveup.go, refusal.go: decisions on records.
//  6. request.go, call.go, orphan.go: which request is sent when.
//  7. edges.go, finding.go, metrics.go, read.go, quarantine.go: everything else.
package dispatch
