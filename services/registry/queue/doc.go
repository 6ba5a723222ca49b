// Package queue is the core of the registry: the queue of reservations, as a
// deterministic machine without clock, I/O or goroutine (see model.Core).
//
//	Upsert ─▶ QUEUED ──StartCycle──▶ lease ──Dispatch──▶ task header ─▶ ACTIVE ─▶ COMPLETED
//	             │   (executor-state)        (assigner)                  │
//	             ├─▶ CANCELLED, EXPIRED, REPLACED                    CANCELLING ─▶ CANCELLED
//	             └◀── a requeue of one worker, or a round of all ◀───────┘
//
// It promises:
//
//   - An accepted reservation keeps its place in its queue until it is dispatched,
//     cancelled, replaced or expired.
//   - Each queue is strict, and queues do not block each other; see package scheduler.
//   - Every decision is derived from records, so any replica continues where another
//     one stopped.
//
// Package request validates requests and compares them, package scheduler orders pending
// reservations and starts the scheduling cycles. Read core.go and version.go first, then
// index.go and journal.go, then upsert.go with living.go, cancel.go, settle.go.
//
// # Upserts
//
// The living versions of a key are:
//
//   - Q, which is queued as requested: without a task header, with a lease or without
//     one. It is one version, or several if parts of it go ahead.
//   - A, any number of started versions: ACTIVE, or QUEUED with a task header.
//   - Requeues of single workers. They count as workers of A, queued or started.
//
// A version that is being cancelled is not living. The newest requested version
// represents the key, before parts, and parts before requeues. The first row that holds
// decides:
//
//	a version or the stage knows the requestId   its first result, nothing changes
//	ifEpoch is not that of the representative    EPOCH_MISMATCH
//	same body and workers as the representative,
//	or as all living versions together:
//	   Q's priority differs                      REORDERED: priority and labels stored
//	   otherwise                                 UNCHANGED: only the call is remembered
//	an explicit number was used before           WORKER_ID_USED
//	nothing left to queue, no Q                  UNCHANGED (a new target size is stored)
//	nothing left to queue, Q                     REPLACED: Q ends
//	no living version                            CREATED, at the tail
//	Q, same constraints, workers ⊆ Q's           REPLACED, new uid, Q's place, its
//	                                             parts included
//	Q, anything else                             REPLACED, new uid, at the tail
//	A only                                       REPLACED: new uid, at the tail, A stays
//
// The body is compared without labels and priority, and constraints are compared as
// matching does, without regard to case. Left to queue are the requested workers without
// those of A that have not ended. Workers of A that the request does not name stay, and
// living ones keep the body they were started with. All living versions together include
// the COMPLETED workers of a batch while others of it live, and exclude workers that were
// cancelled one by one. If the representative was started, naming exactly its workers is
// UNCHANGED even if some of them were cancelled.
//
// # Workers and numbers
//
// The first number of a worker index is 1. The record of a stage has the highest used
// number of each worker index; a number is used once it was queued. An explicit number
// must be higher, or one that Q requests, or a living worker of A. Any other is
// WORKER_ID_USED. With count: n, living worker indexes are not requested again, those of
// Q keep their numbers, and all others take the highest used number + 1. A count equals a
// set of workers that has exactly the worker indexes 0 to n-1, whatever their numbers,
// ended ones included: a repeated request is UNCHANGED and refills no worker index. A
// requeued worker may be named by the numbers of its earlier rounds.
//
// # Cancelling single workers
//
// CancelWorkers removes workers wherever they are in the stage. A version that was not
// dispatched is REPLACED in its place by one without them, or CANCELLED if none is left.
// In a dispatched version, workers that have not ended become unwanted: the assigner
// evicts them, and they are not requeued. The reply comes when each of them is EVICT or
// further in the view, or its task is stopped or deleted. An unwanted worker is no longer
// requested, so its index may be filled at once.
//
// # Requeues
//
// A worker that the assigner returned to the queue (FAILED, with Requeue) is queued again
// as a version of its own, with its next number, one round later. It avoids the failed
// executor for ten minutes (model.AvoidFor) from the failure on, which the record keeps,
// so any leader sends the same. Its parent is the version that it failed in. The requeue
// is dropped if the parent no longer lives, if the worker is unwanted, if its index is at
// or above the target size of the stage, and if the stage has a higher number of the
// index. So it is made exactly once, by any leader, or not at all if the job service was
// faster. A version is COMPLETED only after its requeues were made. A cancel of the key,
// of the parent's epoch, of the job, or of the worker by an earlier number includes them.
// A lower target drops those of worker indexes at or above it. An ended version is kept
// as long as any version that has it as its parent.
//
// # Rounds
//
// If a batch that was to start together cannot, the assigner withdraws it. When all of it
// has ended and nothing is leased to it, it is REPLACED (NOT_TOGETHER) by the same batch
// in its place, every worker with its next number, without the unwanted ones. After
// maxAttempts rounds it is FAILED (ROUNDS_EXHAUSTED), and its message has the reason of
// each.
//
// # Best effort
//
// If a batch is not all-or-nothing (Config.BestEffort, or the request) and a cycle refuses
// it while some of it fits, it is split. That many workers, the first in order of index,
// become a part: a version with a lease of its own. The rest keeps UID and place and has
// fewer workers. A part may be split again. The mode is evaluated when the outcome comes
// and never stored, so it may change while reservations are pending. A batch that starts
// together is never split.
//
// # Readiness
//
// Before the ready mark is stored, nothing is tried or dispatched, and the demand is not
// shown. The mark is stored once in a cluster's life, and once more after a restore
// removed it. With ReadyAuto, the first leader stores it as its term begins. With
// ReadyOnSignal, it stores that it began to wait. MarkReady ends the wait, and so does
// Config.ReadinessGrace, counted from then on, whichever replica leads. Requests are
// accepted all the time, and pending reservations may expire.
//
// # Dispatch
//
// A version with a lease and without a task header is out of its queue. Leased versions
// are dispatched in the order of the queue, up to 64 in one call, one call at a time. A
// version is ACTIVE when the view shows the header complete, never on an answer alone. Its
// record says so in the next transaction, or 20 ms later in one of its own. So the core
// has seen every ACTIVE version with its lease and task, and a missing task was deleted.
// If the assigner refuses a version that has not changed since, it is REPLACED
// (DISPATCH_REJECTED) by a version with a new UID at the tail, with the same body,
// workers, createdAt and remembered requests. The lease then belongs to an ended version
// and is swept like any other.
//
// # Ends
//
// Every effect that ends a QUEUED version requires that its task header is absent. ACTIVE
// becomes COMPLETED, and CANCELLING becomes CANCELLED, when the header says that all
// workers have ended and no chunk of the lease is left; CANCELLING also without a header.
// Ended versions are kept for Config.KeepEnded, and at most Config.MaxEnded of them if
// that is set. The records of a job's stages are deleted with its last version.
// queueTimeout counts from createdAt, and only without a lease; it begins again with a
// requeue or a round. A target size below the stage's latest one cancels (TARGET_LOWERED)
// what is queued under the stage's other names, and requeues of worker indexes at or
// above it.
//
// # Requests
//
// A reply comes in the step in which every earlier decision is durable, so an Upserted has
// its epoch. Abandoned drops the replies of the effects that it takes back: the driver
// gives those inputs again. An input that is given again while its reply is pending is
// answered once.
//
// A version remembers the last 32 requests that made or changed it, and a stage the last
// 32 that changed nothing: a late copy of such a request must not be decided by the
// current state of the stage. A cancel of many versions takes several effects. Only the
// last one has the mark of the request, so the mark shows that all was done.
package queue
