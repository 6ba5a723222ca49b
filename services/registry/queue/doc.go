// Package queue is the core of the registry: the queue of reservations, as a
// deterministic machine without clock, I/O or goroutine (see model.Core).
//
//	Upsert ─▶ QUEUED ──SendCycle──▶ lease ──Dispatch──▶ task header ─▶ ACTIVE ─▶ COMPLETED
//	             │   (executor-state)        (assigner)                  │
//	             ├─▶ CANCELLED, EXPIRED, REPLACED                    CANCELLING ─▶ CANCELLED
//	             └◀── a requeue of one worker, or a round of all ◀───────┘
//
// It promises: a reservation that was accepted is in its queue, in its place,
// until it is dispatched, cancelled, replaced or expired; each queue is strict;
// queues do not wait for each other; and everything is derived from records, so
// that any replica goes on where another stopped.
//
// # What an upsert does
//
// Of a key, the living versions are what is queued as it was asked for (Q: no
// task header yet, with a lease or without; one version, or more where parts of
// it go ahead), any number that were started (A: ACTIVE, or QUEUED with a task
// header), and requeues of single workers, which count as workers of A whether
// queued or started. One being cancelled is not living. The newest of what was
// asked for stands for the others, before parts and those before requeues. The
// first row that holds is done:
//
//	a version or the stage knows the requestId   its first result, nothing changes
//	ifEpoch is not that of what stands for them  EPOCH_MISMATCH
//	same body and workers as that one, or as
//	all living ones together:
//	   Q's priority differs                      REORDERED: priority and labels stored
//	   otherwise                                 UNCHANGED: only the call is remembered
//	an explicit number was used before           WORKER_ID_USED
//	nothing left to queue, no Q                  UNCHANGED (a new target size is stored)
//	nothing left to queue, Q                     REPLACED: Q ends
//	no living version                            CREATED, at the tail
//	Q, same constraints, workers ⊆ Q's           REPLACED, new uid, Q's place, its
//	                                             parts included
//	Q, anything else                             REPLACED, new uid, at the tail
//	A only                                       REPLACED: new uid, at the tail, beside A
//
// The body is compared without labels and priority. Left to queue is what is
// asked for but for the workers of A that have not ended. Workers of A that are
// not named are left alone, and those that live keep the body they were started
// with. Constraints are compared like matching does, without regard to case. All
// living ones together include what is COMPLETED of a batch as long as some of it
// lives, and leave out what was cancelled one by one. Naming exactly the workers of
// the version that stands for them, if it was started, is UNCHANGED even if some of
// those were cancelled.
//
// # Workers and numbers
//
// The first number of a worker index is 1. A stage's record holds the highest number
// used of each worker index: queued once is used. An explicit number is higher than
// that, or one that Q asks for, or a worker of A that lives; anything else is
// WORKER_ID_USED. With count: n a worker index that lives is not asked for, one that Q
// asks for keeps its number, and any other takes the highest used + 1. A count
// compares as the same workers with what holds exactly the worker indexes 0 to n-1,
// whatever their numbers, ended ones included: what is sent again is UNCHANGED
// and refills no worker index. A worker that was queued again goes by the numbers of its
// earlier rounds, too: asked for by one of them, it is there.
//
// # Cancelling single workers
//
// CancelWorkers takes workers away wherever they are in the stage. A version that
// was not dispatched is REPLACED in its place by one without them, or CANCELLED
// when none is left. Of one that was, those that have not ended become unwanted:
// the assigner evicts them, and nothing queues them again. It is answered when
// each of them is EVICT or further in the view, or its task stopped or gone. An
// unwanted worker is not asked for any more: its index may be filled at once.
//
// # Requeue
//
// A worker that the assigner gave up for the queue (FAILED, with Requeue) is
// queued again as a version for itself, with its next number, one round later,
// avoiding the executor that failed for ten minutes (model.AvoidFor) from when it
// did, which the record keeps: any leader sends the same. Its parent is the
// version it failed in. It is dropped unless that lives, when the worker is
// unwanted, when its index is at or above the target size of the stage, and when
// the stage knows a higher number of the worker index: so it is done exactly once, by
// whichever leader, or not at all where the job service was faster. A version is
// not COMPLETED before its requeues were made. A cancel of the key, of the
// parent's epoch, of the job or of the worker by an earlier number includes them;
// a lower target drops those of worker indexes at or above it. An ended version is kept as
// long as one that came of it.
//
// # Rounds
//
// A batch that was to start together and could not is withdrawn by the assigner.
// When all of it has ended and nothing is leased to it, it is REPLACED
// (NOT_TOGETHER) by the whole of it once more, in its place, every worker with
// its next number, but for the unwanted. Once maxAttempts rounds are spent it is
// FAILED (ROUNDS_EXHAUSTED), and tells what each of them came to.
//
// # Best effort
//
// Where a batch need not be whole (Config.BestEffort, or the request), a cycle
// that refuses it while some of it fits splits it: that many workers, the first
// in order of index, become a part, a version with a lease of its own; the rest
// keeps uid and place and asks for less. Parts may be split again. The mode is
// looked at when the answer comes and never stored, so it may change while
// reservations wait. What is to start together is never split.
//
// # Order
//
// A queue is ordered by the Order, then the place: a sequence that only rises.
// Requeues come before all else, among themselves by place alone, in each queue
// and across queues. A version that takes the place of another inherits place and
// epoch; parts share theirs with the rest of the batch, the lower worker indexes first.
// Between
// decision and commit a version has no epoch and orders behind all that have.
// The strategies and their names are in order.go, and one more is a line there.
//
// # Scheduling cycles
//
// One scheduling cycle is in flight at most. One starts when a head may be tried: a new
// head or a changed one at once; one that did not fit only after a wake-up, which is
// the inventory's change (Config.Debounce after the first) or the timer
// (Config.RetryEvery). Behind each head goes an ordered prefix of its queue, as
// far as the last cycle found room there and as Config.CycleCandidates and
// Config.CycleWorkers allow, in one order of all.
// A STALE or BEHIND candidate needs nothing: whatever changes a head makes it due again.
// What a cycle did not get to (LATER) is due at once, and so is what it had no room for:
// a cycle is one message (Config.CycleBytes).
// Between two cycles, and between two dispatches, lies at least
// Config.MinDelay.
//
// Each cycle has the heads of all queues, whatever triggers it: what became
// free goes by precedence, and not to the queue that is woken first. Counted is,
// of each cycle, what triggered it: the inventory, the timer, a cancel or flush, a
// grant, readiness, or a head that came or changed.
//
// # Readiness
//
// Nothing is tried, dispatched or shown as the whole of what waits before
// the ready mark is stored: once in a cluster's life, and once more after a
// restore took it away. With ReadyAuto the first leader stores it as it begins.
// With ReadyOnSignal it stores that it has begun to wait; MarkReady ends that,
// or Config.ReadinessGrace counted from then, whoever leads meanwhile. Requests
// are taken all the time, and what waits may expire.
//
// # Dispatch
//
// What holds a lease and has no task header is out of its queue and dispatched
// first, in the queue's order, up to 64 in one call, one call in flight. A version is
// ACTIVE when the view shows the header complete, never on an answer alone; its record says so with the next that is written, or 20 ms later by itself:
// so every ACTIVE version has been seen with its lease and task, and a task
// that is missing later has gone. What the assigner refuses as it still is
// becomes REPLACED (DISPATCH_REJECTED) by a version with a new uid at the tail,
// body, workers, createdAt and remembered calls the same: the lease then belongs
// to an ended version and is swept like any other.
//
// # Ends
//
// Whatever ends a QUEUED version compares that its task header is absent.
// ACTIVE becomes COMPLETED, and CANCELLING CANCELLED, when the header says that
// all workers have ended and no chunk of the lease is left; CANCELLING also when
// its header is gone. Ended versions are kept for Config.KeepEnded, and
// at most Config.MaxEnded of them where that is given; with a
// job's last record go the records of its stages. queueTimeout counts from
// createdAt and only while no lease is held; a requeue's or a round's wait begins
// anew. A target size lower than the stage's latest cancels (TARGET_LOWERED) what
// is queued under its other names, and of requeues those of worker indexes at or above it.
//
// Shown for a key is what stands for its versions that have not ended, or else
// the newest.
//
// A flush ends as CANCELLED (FLUSHED) what is queued of a job or in a group, with
// a lease or without one, and leaves what was dispatched.
//
// # Requests
//
// Every reply comes in the step in which all that was decided before it is
// durable, so an Upserted carries its epoch. Abandoned takes the replies of what
// it takes back along: those inputs are to be given again. An input given again
// though its reply is still owed is answered once.
//
// A version remembers the last 32 calls that made or changed it, and a stage's
// record the last 32 that changed nothing: a late copy of one of these must not
// be decided on what has become of the stage since. A cancel of many versions takes several
// effects, of which the last carries the mark: found, all was done.
package queue
