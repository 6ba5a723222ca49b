// Package dispatch requests the start of a leased worker only when its task is durable. If
// a worker may run, the package records the end of the worker only when the executor
// confirms the end, the executor is LOST, or an operator clears the worker's quarantine.
//
// It is the assigner's core. It creates a task from each lease that the registry
// dispatches, requests agents to start the workers, and follows every worker until the
// worker has ended. The core has no clock, I/O, goroutine or lock; one goroutine owns a
// [Core] and calls Step.
//
//	registry ──Dispatch──▶ ┌──────────┐ ──Submit, Stop──▶ agents
//	agents ────Report────▶ │ dispatch │ ◀──SubmitDone, StopDone──┘
//	view ────Changed─────▶ └──────────┘ ──Effect──▶ assigner/tasks/…
//
// The core promises:
//
//  1. A task is created once, from exactly the reservation and lease that the registry
//     decided on. Its workers are started only when the whole task is durable. The
//     number of requests in flight is limited, in all and for each executor, and each
//     request has a deadline.
//  2. An executor gets at most maxAttempts requests to start a worker, with exponential
//     backoff and full jitter, each over a new connection. A failed attempt is durable
//     before the next one is sent. A change of leader can repeat the attempt in flight. A
//     refusal because an earlier worker is still on the volume (VOLUME_IN_USE) does not
//     count: the request is repeated until that worker has exited.
//  3. A worker without attempts left ends as soon as its executor cannot start it any
//     more. If a policy of the reservation names the end of a worker
//     (onAssignmentFailure, restart or onWorkerLoss), the effect that ends the worker
//     marks it, and the registry queues its index again. A worker is marked at most once.
//     Except with restart ALWAYS, the number of requeues in a row after a failure is
//     limited; a worker that moved has not failed ([model.TaskWorker.Moved]). The core
//     never marks a worker that it stopped because of a cancel, an expiry or the end of
//     its lifetime. A job event reports whether the worker is requeued.
//  4. A gang (a batch with all-or-nothing start) is withdrawn if, before all workers have
//     run, a worker cannot start, is lost, or ends in a way that a policy names. The
//     task's header says why, and all workers of the gang are stopped. When all workers
//     have run, each worker is independent. With onWorkerFailure RESTART_GANG, a worker that
//     started and whose end a policy names withdraws the gang at any time, in all versions of the
//     reservation that have this policy. So does a version that is dispatched meanwhile. A failure
//     beyond the limit withdraws nothing: the registry then ends the reservation.
//  5. Once a stop is durable, the worker is not started any more. The end of a
//     reservation stops all its workers, a cancelled worker ID stops that worker, and
//     draining an executor stops all workers on it. If no start request for a worker can
//     have reached its executor, the worker ends at once.
//  6. A worker's state follows [model.WorkerState.MayBecome]; [Edges] lists the cause and
//     the deadline of each transition. If a start request may have reached the executor,
//     the worker ends only when the executor confirms the end, the executor is LOST, or
//     an operator clears the worker's quarantine ([Clear]). So used capacity is never
//     freed. A worker past its deadline is a [Finding]. If the executor never answered, and
//     executor-state has marked it as silent, the worker is LOST, and its share stays used
//     until one of these holds: see silent.go.
//  7. A report or answer affects only the worker with the same uid, worker ID, epoch and
//     executor. The core reports and marks the end of a worker, and never replaces a
//     worker itself.
//  8. If the reservation has a lifetime from LIVE, the core stops a worker that has been
//     RUNNING for the lifetime. The time counts from the worker's record, so a change of
//     leader does not extend it.
//  9. The members of a gang are its placed workers, without those that are queued again or
//     were cancelled, and a start request has the number of all its workers. Both follow
//     from the records of the versions that are queued or active, and of those from which
//     they descend. The core reports each change for which a caller waits ([Core.Watch]).
//
// Executor-state decides that an executor is LOST; the assigner then writes LOST for each
// worker on that executor (lose in review.go), unless the records about the worker are
// quarantined. The deletion of an executor's record has the same effect.
//
// Of the promises of executor-state, the core keeps the tenth:
//
//  10. [model.Reconcile] decides what a report means for each worker. If an executor
//     should not have a worker, that worker is an orphan: the core stops it, and reports
//     a [Finding] until its end is confirmed. A confirmed end is final: if the answer to the
//     start request arrives after it and shows an earlier state, the worker is not an
//     orphan. A report that contradicts a record frees no capacity: a worker whose uid and
//     worker ID are listed is not absent, and the end of another epoch, name or executor
//     does not end the recorded worker.
//
// About volumes, whose records executor-state owns, the core promises:
//
//  11. A worker on a volume is started only on the volume that the records assign to its index
//     on its executor. The request creates the volume only while no worker can have used it.
//     If the records show no such volume, the core sends nothing, and counts the attempt as
//     refused with VOLUME_MISSING. If the record cannot be read, the worker waits.
//  12. The core requests an executor to destroy a volume only while its record says
//     DESTROYING, or while an operator requests the removal of a volume that no record assigns
//     to the executor. The core repeats the request until the records change.
//
// The ready gate: before the registry is ready, for example after a restore, a missing
// record proves nothing, because job services may not have repeated their requests yet.
// Until then the core stops no orphan (waitsIn in call.go). Because of a missing record, it
// stops and gives up no worker, and deletes no task and no refusal (review.go, refusal.go).
//
// Two different things are quarantined. A quarantined record is a record that cannot be
// read or that made the core panic: the core does not act on its task (quarantine.go). A
// quarantined worker has a stop whose confirmation is overdue ([FindingQuarantined],
// clear.go).
//
// The transcripts in testdata begin with the number of the promise that they show.
//
// Everything else is derived from records, so a successor with the same records makes the
// same decisions. Only three facts are in memory alone: the calls in flight, their
// backoff, and whether an attempt without an answer may have reached its executor. A
// successor assumes that every attempt may have reached its executor.
//
// Read the files in this order:
//
//  1. event.go, action.go: the inputs and outputs.
//  2. core.go: one step.
//  3. view.go, task.go, store.go: the records in memory. draft.go: from a decision to an
//     effect.
//  4. dispatch.go, start.go, stop.go, report.go, clear.go: decisions on inputs.
//  5. review.go, giveup.go, silent.go, requeue.go, lifetime.go, refusal.go: decisions on
//     records.
//  6. request.go, call.go, orphan.go, volume.go: which request is sent when, and the ready
//     gate.
//  7. edges.go, finding.go, metrics.go, read.go, members.go, quarantine.go: everything else.
package dispatch
