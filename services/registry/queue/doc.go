// Package queue is the core of the registry: the queue of reservations, as a
// deterministic machine without clock, I/O or goroutine (see model.Core).
//
//	Upsert ─▶ QUEUED ──SendPass──▶ lease ──HandOver──▶ task header ─▶ ACTIVE ─▶ COMPLETED
//	             │   (executor-state)        (assigner)                  │
//	             ├─▶ CANCELLED, EXPIRED, REPLACED                    CANCELLING ─▶ CANCELLED
//
// It promises: a reservation that was accepted is in its queue, in its place,
// until it is handed over, cancelled, replaced or expired; each queue is strict;
// queues do not wait for each other; and everything is derived from records, so
// that any replica goes on where another stopped.
//
// # What an upsert does
//
// Of a key, the living versions are at most one that is queued (Q: no task
// header yet, with a lease or without) and any number that were started (A:
// ACTIVE, or QUEUED with a task header). One being cancelled is not living.
// The first row that holds is done:
//
//	a version or the stage knows the requestId   its first result, nothing changes
//	ifEpoch is not the newest living epoch       EPOCH_MISMATCH
//	same body and workers as the newest living
//	version, or as all living ones together:
//	   Q is newest and the priority differs      REORDERED: priority and labels stored
//	   otherwise                                 UNCHANGED: only the call is remembered
//	an explicit number was used before           WORKER_ID_USED
//	nothing left to queue, no Q                  UNCHANGED (a new target size is stored)
//	nothing left to queue, Q                     REPLACED: Q ends
//	no living version                            CREATED, at the tail
//	Q, same constraints, workers ⊆ Q's           REPLACED, new uid, Q's place
//	Q, anything else                             REPLACED, new uid, at the tail
//	A only                                       REPLACED: new uid, at the tail, beside A
//
// The body is compared without labels and priority. Left to queue is what is
// asked for but for the workers of A that have not ended. Workers of A that are
// not named are left alone, and those that live keep the body they were started
// with. Constraints are compared like matching does, without regard to case.
//
// # Workers and numbers
//
// The first number of a seat is 1. A stage's record holds the highest number
// used of each seat: queued once is used. An explicit number is higher than
// that, or one that Q asks for, or a worker of A that lives; anything else is
// WORKER_ID_USED. With count: n a seat that lives is not asked for, one that Q
// asks for keeps its number, and any other takes the highest used + 1. A count
// compares as the same workers with what holds exactly the seats 0 to n-1,
// whatever their numbers, ended ones included: what is sent again is UNCHANGED
// and refills no seat.
//
// # Order
//
// A queue is ordered by the Order, then the place: a sequence that only rises.
// A version that takes the place of another inherits place and epoch. Between
// decision and commit a version has no epoch and orders behind all that have.
// The strategies and their names are in order.go, and one more is a line there.
//
// # Passes
//
// One pass is in flight at most. It is cut when a head may be offered: a new
// head or a changed one at once; one that did not fit only after a wake-up,
// which is the inventory's change (Config.Debounce after the first) or the timer
// (Config.RetryEvery). Behind each head goes an ordered prefix of its queue, as
// far as Config.PassEntries and Config.PassWorkers allow, in one order of all.
// A STALE or BEHIND entry needs nothing: whatever changes a head offers it again.
// Between the cuts of two passes, and between two hand-overs, lies at least
// Config.MinDelay.
//
// While a change of the inventory is being gathered each pass offers the heads
// of all queues, whatever it is cut for: what became free goes by precedence,
// and not to the queue that is woken first. Counted is, of each pass, what it
// was cut for: the inventory, the timer, a cancel or flush, a grant, readiness,
// or a head that came or changed.
//
// # Readiness
//
// Nothing is offered, handed over or shown as the whole of what waits before
// the ready mark is stored: once in a cluster's life, and once more after a
// restore took it away. With ReadyAuto the first leader stores it as it begins.
// With ReadyOnSignal it stores that it has begun to wait; MarkReady ends that,
// or Config.ReadinessGrace counted from then, whoever leads meanwhile. Requests
// are taken all the time, and what waits may expire.
//
// # Hand-over
//
// What holds a lease and has no task header is out of its queue and handed over
// first, in the queue's order, up to 64 in one call, one call in flight. ACTIVE
// is written when the view shows the header complete, never on an answer alone:
// so every ACTIVE version has been seen with its lease and task, and a task
// that is missing later has gone. What the assigner refuses as it still is
// becomes REPLACED (HAND_OVER_REFUSED) by a version with a new uid at the tail,
// body, workers, createdAt and remembered calls the same: the lease then belongs
// to an ended version and is swept like any other.
//
// # Ends
//
// Whatever ends a QUEUED version compares that its task header is absent.
// ACTIVE becomes COMPLETED, and CANCELLING CANCELLED, when the header says that
// all workers have ended and no chunk of the lease is left; CANCELLING also when
// its header is gone. Ended versions are kept for model.KeepTerminal; with a
// job's last record go the records of its stages. queueTimeout counts from
// createdAt and only while no lease is held. A target size lower than the
// stage's latest cancels (TARGET_LOWERED) what is queued under its other names.
//
// Shown for a key is its newest version that has not ended, or else the newest.
//
// A flush ends as CANCELLED (FLUSHED) what is queued of a job or in a group, with
// a lease or without one, and leaves what was handed over.
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
