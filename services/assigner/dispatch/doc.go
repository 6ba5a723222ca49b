// Package dispatch is the assigner's core: it makes a task of each lease that the
// registry dispatches, has the agents start its workers, and follows every worker to
// its end. It has no clock, no I/O, no goroutine and no
// lock; one goroutine owns a Core and calls Step.
//
//	registry ──Dispatch──▶ ┌──────────┐ ──Submit, Stop──▶ agents
//	agents ────Report────▶ │ dispatch │ ◀──SubmitDone, StopDone──┘
//	view ────Changed─────▶ └──────────┘ ──Effect──▶ assigner/tasks/…
//
// What it promises:
//
//  1. A task is created once, from the reservation and the lease as they were
//     decided on, and submitted only when all of it is durable. What is in
//     flight is bounded, in all and at each executor, and has a deadline.
//  2. An executor is asked at most maxAttempts times in total to start a worker,
//     with exponential back-off and full jitter, over a fresh connection each
//     time; an attempt that failed is durable before the next one is sent. (A
//     change of leader can repeat the one that was on its way.)
//  3. A worker whose attempts are spent ends once its executor cannot start it
//     any more. It is marked for the registry to queue again, if that was asked
//     for and there are rounds left; the job is told which of the two it is.
//  4. A batch that is to start together and has a worker that cannot, or that is
//     lost before all have run, is withdrawn: its header says why, and all its
//     workers are stopped. Once all have run, each is on its own.
//  5. Once a stop is durable, no submit is sent for that worker. A reservation
//     that ends stops all workers, one that does not want a worker any more that
//     one, and an executor that drains all that are on it. What its executor was
//     never asked to start has ended at once.
//  6. A worker's state moves by [model.WorkerState.MayBecome] alone; [Edges] says
//     on whose word and by when. A worker whose executor may have been reached
//     ends only when a stop is confirmed, the executor is LOST or an operator
//     says that the worker is gone ([Clear]), so that its capacity is never freed
//     under it; past its deadline it is a [Finding].
//  7. Word is taken only about that very worker: same uid, worker ID, epoch and
//     executor. A worker that ends is told of, and replaced by nobody here.
//
// And of what the executor state promises, the tenth:
//
//  10. What a report means is for [model.Reconcile] to say, worker by worker.
//     What an executor should not have is told to stop, and is a [Finding] until
//     it says that it is gone. A report that contradicts the record frees no
//     capacity: whatever is listed under a uid and worker ID is not absent, and the
//     end of one of another epoch, name or executor is not the recorded one's.
//     Nothing is taken from a record that is not there before the registry is
//     ready: then no stray is stopped, and nothing is swept.
//
// The transcripts in testdata begin with the number of what they show.
//
// Everything is derived from records: a successor that sees the same records
// does the same. In memory alone are the calls in flight, their back-off, and
// whether the outcome of an attempt was unknown, which a successor assumes.
//
// Reading order: event.go and action.go (the edge), core.go (one step),
// store.go (how memory changes), draft.go (how a decision becomes an effect),
// create.go, submit.go, stop.go, report.go, clear.go (what is decided on word
// from outside), review.go (what is decided on sight of the view), giveup.go (what
// becomes of what cannot be started), order.go (what is sent when), edges.go and
// finding.go (the states as a table, and what misses it), figures.go (what is
// counted).
package dispatch
