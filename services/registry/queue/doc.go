// Package queue keeps every acknowledged reservation in its place until it is dispatched,
// cancelled, replaced or expired, and grants the reservations of each group in order. It is
// the core of the registry: a deterministic machine without clock, I/O or goroutine (see
// model.Core).
//
//	Upsert ─▶ QUEUED ──StartCycle──▶ lease ──Dispatch──▶ task header ─▶ ACTIVE ─▶ COMPLETED
//	             │   (executor-state)        (assigner)                  │
//	             ├─▶ CANCELLED, EXPIRED, REPLACED                    CANCELLING ─▶ CANCELLED
//	             └◀── a requeue of one worker, or a round of all ◀───────┘
//
// It also promises:
//
//   - Each queue is strict, and queues do not block each other; see package scheduler.
//   - Every decision is derived from records, so any replica continues where another
//     one stopped.
//
// Package request validates requests and compares them. Package scheduler orders pending
// reservations and starts the scheduling cycles. Read core.go and version.go first, then
// index.go and journal.go, then upsert.go with living.go, cancel.go, settle.go.
//
// # Upserts
//
// The living versions of a key are:
//
//   - Q, the version that is queued as requested: it has no task header, and may have a
//     lease. If parts of the batch go ahead, Q is several versions.
//   - A, any number of started versions: ACTIVE, or QUEUED and bound or with a task header.
//   - Requeues of single workers, and rounds of gangs that wait to start again. They count as workers of
//     A, whether queued or started.
//
// A version that is being cancelled is not living. The newest requested version represents
// the key. If there is none, the newest part does, and otherwise the newest requeue. An
// invalid request, or a request for a quarantined stage, is rejected first. Then the first
// row that holds decides (Core.upsert):
//
//	the requestId was used for another call      DUPLICATE
//	the key or the stage remembers this call     its first result, nothing changes
//	ifEpoch is not that of the representative    EPOCH_MISMATCH
//	same body and workers as the representative's
//	latest request, or as all living versions:    stored, see below
//	an explicit number was used before, and the
//	request does not name exactly the workers
//	shown, of a version, or of the latest list    WORKER_ID_USED
//	targetSize is below the requested workers
//	that have not ended and are not cancelled     INVALID
//	all of Q has this body, and the workers
//	left to queue are exactly those of Q         stored, see below
//	nothing left to queue, no Q                  stored, see below
//	workers to queue, expireAt has passed        INVALID
//	too large for one transaction                TOO_LARGE
//	beyond a limit of the tenant                 TENANT_LIMIT
//	more queued or stored than the limits allow  OVERLOADED
//	nothing left to queue, Q                     REPLACED: Q ends
//	no living version                            CREATED, at the tail
//	Q, same constraints, workers ⊆ Q's           REPLACED: new UID, in the first place of
//	                                             Q's versions, parts included
//	Q, anything else                             REPLACED: new UID, at the tail
//	A only                                       REPLACED: new UID, at the tail, A stays
//
// An upsert that is stored without a version of its own has one of these results:
//
//	it is the latest request of all versions     UNCHANGED: only the call is remembered
//	expireAt differs, perhaps priority, labels   EXTENDED
//	Q's priority differs, perhaps labels         REORDERED
//	anything else                                UPDATED
//
// The workers left to queue are the requested workers, except the workers of A that have
// not ended. For example, A has workers 0 and 1, and Q has 2 and 3. A request with Q's body
// for workers 0, 2 and 3 leaves 2 and 3 to queue, so Q stays.
//
// The body is compared without labels, priority and expireAt. Constraints are compared as matching
// compares them, without regard to case. Workers of A that the request does not name stay.
//
// # The latest request
//
// Every upsert that is not rejected is stored as a whole, so a loop that compares and applies
// ends. It changes no uid, epoch, place or number of a version that stays:
//
//   - expireAt, priority, labels and targetSize are stored in every living version and apply at
//     once. An expireAt that has passed ends them.
//   - A started version keeps its Spec, which the assigner and the workers use, and stores a
//     request that differs as Latest. Every version that derives from it takes that
//     (request.Take): a requeue or a round has the new task, policies and constraints. A worker
//     that is dispatched is started with the task of its version, also if no agent has
//     acknowledged it yet.
//   - A requeue that is not dispatched takes the request at once. With the same constraints it
//     keeps uid, place, number and lease; with others it is REPLACED by a version at the tail.
//     With another task its restarts begin anew: it has no failures and no delay. A delay is
//     due to the failures of the earlier task.
//   - No version takes a notBefore, hold, holdTimeout, volume or cells, because only the first
//     version of a worker can have them. The Latest shows them, and so does the answer.
//   - Requested workers that are not exactly those with which the reservation is shown, such as a
//     smaller count, or a list with the earlier number of a worker that was queued again, are stored
//     in a Latest, and stop no worker. All living versions have a count. One version of the
//     reservation has a list, because it may be large: the version that represents the key when it is
//     stored. The list counts also after that version has ended. Before the version is forgotten,
//     another one gets the list (Core.keepList), and an upsert that requests other workers drops it
//     (Core.dropLists). So what is shown is what was sent, and its repeat is UNCHANGED.
//
// Get and List show the body of the latest request. An answer says to which workers its fields
// apply (Core.fieldResults), derived from the records; the mark of the call has the fields that it
// changed. If a started version is not dispatched any more, because its task was withdrawn
// before it was complete, it takes its Latest (takesLatest).
//
// A list that names exactly the workers of one version has only added them to those of others, so
// its answer says nothing about the others (Core.onlyAdded).
//
// All living versions together include the COMPLETED workers of a batch while other workers
// of the batch live. They exclude workers that were cancelled one by one. If the
// representative was started, a request that names exactly its workers is UNCHANGED, even
// if some of them were cancelled. With another body it is stored, and queues none of them.
//
// # Fewer workers
//
// With shrink STOP_HIGHEST an upsert stops workers before it is stored (Core.shrink): those with the
// highest indexes that it does not request, until the stage has no more workers than targetSize. The
// workers of all names of the stage count that are wanted and have not ended or are queued again, in every
// version. They are removed like those of CancelWorkers, so nothing that derives from records starts
// them again. Their removal comes first, and the request is remembered with the last effect: if a leader
// fails in between, a repeat stops the rest. Without STOP_HIGHEST, or if targetSize allows more workers
// than the request names, an answer names those that stay.
//
// # Default attributes
//
// A version records the attributes that its request did not name (Config.DefaultAttributes)
// like requested ones, with their names. If a request has the constraints of the version
// that represents the key, as requested or with its default attributes, it gets the default
// attributes of that version. So the table above does not depend on the configuration of
// the leader, except for new constraints.
//
// # Tenants
//
// Each upsert has the tenants of that time as an input, and the limits of the job's tenant
// apply to what the upsert adds: repeats, UNCHANGED, requests for fewer workers, cancels and
// versions that Berth itself queues are never TENANT_LIMIT. REORDERED is, if it raises the
// priority above the limit. A worker counts until it has ended, even if it was cancelled.
// Replaced versions count as stored bytes while they are kept. So that a tenant at its limit
// can remove workers, the same reserve as for OVERLOADED is left for that. The usage follows
// from the records, so every replica counts the same.
//
// # Workers and numbers
//
// The first number of a worker index is 1. The record of a stage has the highest used
// number of each worker index. A number counts as used once it was queued. An explicit
// number must be higher, or belong to a worker of Q or to a living worker of A. Any other
// number is WORKER_ID_USED, except in a request that names exactly the workers shown.
//
// With count: n, the request is for the worker indexes 0 to n-1. An index with a living
// worker of A is not queued again, a worker of Q keeps its number, and every other index
// gets its highest used number + 1. A count equals a set of workers that has exactly the
// worker indexes 0 to n-1, whatever their numbers, and ended workers count too. So a
// repeated request is UNCHANGED and refills no worker index. A request may name a requeued
// worker by the numbers of its earlier rounds.
//
// A listed worker without a number (request.NextNumber) is like an index of a count. The Latest
// keeps the list as it was sent, with the number 0.
//
// Several reservation names of one stage may have workers of one index. They share its numbers
// and nothing else: a worker of one name neither keeps a worker of another name from being
// queued again, nor is it meant by a number of that worker.
//
// # Cancelling single workers
//
// CancelWorkers removes workers from all versions of the stage. A version that was not
// dispatched is REPLACED in its place by a version without these workers, or CANCELLED if
// no worker is left. In a dispatched version, the workers that have not ended become
// unwanted: the assigner evicts them, and the registry does not requeue them. The reply
// comes when the view shows each of them as EVICT or in a later state, or shows their task
// as stopped or deleted. An unwanted worker is no longer requested, so another worker may
// be requested for its index at once.
//
// # Requeues
//
// If the assigner returns a worker to the queue (FAILED, with Requeue), the registry queues
// the worker again as a version of its own, with the next unused number of its index, one
// round later. The new version avoids the failed executor for ten minutes (model.AvoidFor)
// from the failure on. The failure is its reason while it waits for its turn or for capacity
// (FailedFor). If the task was at fault, it is in a group of its own, so that it blocks nothing behind
// it while it avoids executors that have capacity for others (Reservation.BlamesTask). Another task ends
// both. Its record keeps the time of the failure, so any leader sends the same
// candidate. Its parent is the version in which the worker failed. If that version is itself a
// requeue, the parent is the parent of that requeue, so requeues have no descendants, and a
// worker that is requeued every day leaves no chain of records. A requeue is not made if:
//
//   - the version in which the worker failed no longer lives,
//   - the worker is unwanted,
//   - its index is at or above a target size that was lowered since,
//   - another version of the key has a higher number of the index, because the job service has
//     requested the index again, or
//   - the index has no number left.
//
// The transaction of a requeue also stores in the version in which the worker failed that it
// was queued again (Requeued). If the job service has requested the index again, a transaction
// of its own stores that. So any leader makes a requeue exactly once, or not at all if the job
// service requested the index first. Neither the requeue nor the numbers of the index can tell
// it: the requeue may have ended and been deleted, and other names use the index. A version is
// COMPLETED only after its requeues were made.
//
// A requeue has the numbers that its worker had before (Earlier). A round has them in the
// rounds before it, which are kept. A cancel of the key, of the parent's epoch, of the job, or
// of the worker by an earlier number also cancels the requeue. So does a cancel of the epoch of
// an earlier requeue of the worker, while that requeue is kept. A lower target size cancels the
// requeues of worker indexes at or above it. An ended version is kept as long as any version
// that has it as its parent.
//
// # Restarts
//
// The assigner marks the workers in the same way that the reservation restarts or replaces
// (Spec.Restart, Spec.OnWorkerLoss), and it alone decides whether the limit of restarts is
// reached: it knows the end of the worker, and the record of the version has the number of
// failures in a row. The registry raises this number by one, or begins at one if the worker
// has run for ten minutes (model.StableAfter). The requeue enters its queue after the delay
// that the number calls for (model.RestartDelay), counted from the end of the worker, and is
// RESTARTING until then. It does not avoid an executor on which the worker ran.
//
// A worker that moved (model.TaskWorker.Moved) did not fail: its executor was LOST or drained, or
// stopped it. Its requeue keeps the number, enters its queue at once and avoids no executor.
//
// A requeue is before all versions that are not requeued. With Spec.Requeue BY_ORDER it has the
// place and the epoch of the version that had the worker instead.
//
// If the assigner does not mark such a worker because the limit is reached, the worker has
// the reason ROUNDS_EXHAUSTED. A version with such a worker is a finding (GAVE_UP) as long as
// it is kept, and COMPLETED with that reason, or FAILED if all its workers were given up. A version
// that restarts its worker always, and more often than its limit, is a finding (CRASH_LOOP)
// until the worker has run for ten minutes.
//
// A version that ends stores which of its workers have ended for good (Missing), and a version that
// lives stores those that are not requeued because of a target size or their number. As long as other
// workers of the reservation live, in any version, they are a finding (INCOMPLETE_GANG), unless one of
// them is GAVE_UP. A version that is forgotten hands them to the one that also gets its ends.
//
// # Clocks
//
// A version has at most four times, and its next one is in one index (Core.clocks):
//
//   - ExpiresAt, from the request's expireAt or its lifetime since it was accepted. A version
//     that was not dispatched is EXPIRED then. A started version becomes CANCELLING with the
//     reason EXPIRED, the assigner stops its workers, and it is EXPIRED when they have ended.
//     Versions that derive from it inherit the time. Nothing is queued again after it.
//   - NotBefore, from the request or a restart. Until then the version is in no queue and no
//     demand. Then it enters its queue in the order that it has by its request.
//   - The end of its queueTimeout, while it is pending and awaits the first grant of its request.
//   - The end of its hold, while it is held. It counts from the grant, by the clock of the
//     leader of executor-state.
//
// All are wall times of the leader. If clocks differ between replicas, a version expires early
// or late by the difference, and nothing else changes: a stop remains a promise of the agent.
//
// # Rounds
//
// If a batch should start together and cannot, the assigner withdraws it. When all its
// workers have ended and nothing is leased to it, it is REPLACED (NOT_TOGETHER) by the same
// batch in its place, every worker with the next unused number of its index, without the
// unwanted workers.
// After maxAttempts rounds that failed it is FAILED (ROUNDS_EXHAUSTED), and its message has the
// reason of each round. A round in which workers moved and none failed does not count.
//
// # Best effort
//
// A batch that is not all-or-nothing (Config.BestEffort, or the request) is split if a
// cycle refuses it while some of its workers fit. As many workers as fit, the first in
// order of index, become a part: a version with a lease of its own. The cycle ends there, so
// that no later reservation takes what the part needs. The rest keeps UID and place and has
// fewer workers. A part and the rest may be split again. The registry
// evaluates the mode when the outcome comes and never stores it, so the mode may change
// while reservations are pending. A batch that starts together or is held is never split.
//
// # Readiness
//
// Before the ready mark is stored, the registry tries and dispatches nothing, and does not
// show the demand. The mark is stored once in a cluster's life, and once more if a restore
// removed it. With ReadyAuto, the first leader stores the mark as its term begins. With
// ReadyOnSignal, it first stores that it began to wait. MarkReady ends the wait, and so
// does Config.ReadinessGrace, counted from the stored begin, whichever replica leads.
// Requests are accepted all the time, and pending reservations may expire.
//
// # Dispatch
//
// A version with a lease and without a task header is out of its queue. The registry
// dispatches leased versions in the order of the queue, up to 64 in one call, one call at a
// time. A version is ACTIVE when the view shows the header complete, never because of an
// answer alone. Its record says ACTIVE in the next transaction, or 20 ms later in a
// transaction of its own. So the core has seen every ACTIVE version with its lease and
// task, and if the task is missing, it was deleted.
//
// If the assigner refuses a version that has not changed since, the version is REPLACED
// (DISPATCH_REJECTED) by a version with a new UID at the tail, with the same body, workers,
// createdAt and remembered requests. The lease then belongs to an ended version, so
// executor-state deletes it as orphaned.
//
// # Holds
//
// A version with Spec.Hold that has a lease is HELD: it is out of its queue and not dispatched.
// Like ASSIGNING, the state is derived: the record says QUEUED. It leaves the state by
//
//   - a bind, one put of BoundAt and perhaps of another task, which requires that the task
//     header is absent. From then on it is dispatched like any other version. Versions that
//     derive from a bound version are bound too, so a worker that is restarted is not held.
//   - its HoldTimeout since the grant: EXPIRED (HOLD_TIMEOUT).
//   - a withdrawal, when one of its executors is LOST or draining: it is REPLACED
//     (HOLD_WITHDRAWN) by a version in its place, which is leased anew. It has no queueTimeout.
//   - everything that ends or replaces a version that was not dispatched. Executor-state then
//     deletes the lease as orphaned.
//
// A bind is refused if the version has no task and the bind brings none, or if the task has no command and
// an executor of the lease says that it starts only programs (model.Executor.NeedsCommand). The
// version then stays held.
//
// A bound version counts as started, although its task may be missing for a while: an upsert
// does not replace it. It records the task that was requested (RequestedTask), which stands for
// that of the bind, so a job service may repeat the request for the hold. Once an upsert brings
// another task, that is the task of the reservation: only a request without a task stands for it. A
// held version is replaced like a queued one, and its executors are freed. A flush leaves it.
//
// # Ends
//
// Every effect that ends a QUEUED version requires that its task header is absent. ACTIVE
// becomes COMPLETED, and CANCELLING becomes CANCELLED, when the header says that all
// workers have ended and no chunk of the lease is left. CANCELLING becomes CANCELLED also
// without a header. Ended versions are kept for Config.KeepEnded, and at most
// Config.MaxEnded of them if that is set. The versions that count in the view of a reservation
// which has ended are kept until KeepEnded after the last end. The records of a job's stages
// are deleted with the job's last version.
//
// queueTimeout counts from createdAt or NotBefore, whichever is later, and applies only to
// a version without a lease whose workers had no executors before: not to a requeue, a round, or
// what follows a withdrawn hold. A target size
// below the stage's latest one cancels (TARGET_LOWERED) the reservations that are queued
// under the stage's other names, and the requeues of worker indexes at or above the target
// size.
//
// # Views
//
// Get and List show a reservation: of each worker index the worker with the highest number, over
// all kept versions that have the same First. First is inherited by all versions that derive
// from one, and by a request while a version of the key lives. Not counted are REPLACED versions
// and requests that ended before they had executors, except for the rest of a batch of which parts
// went ahead (Split). A version itself is shown only by Versions,
// Queue and the answers to calls that change it.
//
//   - State is that of the requested workers that still wait for their first executors, if any
//     do. Otherwise it is ACTIVE while a version is, QUEUED while workers are queued again, and
//     CANCELLING. When all versions have ended, the last end decides between CANCELLED, EXPIRED
//     and the others. FAILED means that Berth gave up the newest worker of every index, whether it
//     ran or not, or that the gang failed. So a job service that has added workers waits for ACTIVE,
//     and a restart is no step back.
//   - Place, reason and explanation are those of the version that waits (Core.waitingOf).
//   - A filter by state selects a reservation also by its versions that have not ended.
//
// A view reads sets of workers, counts, and the workers that failed or are overtaken, so its cost
// does not depend on the number of workers. The record of an ended version has how its workers
// ended (Ends.Own): the task is deleted. The transaction that deletes a version whose reservation
// lives stores its ends in another version (Ends.Past), in that of its parent or else of the
// origin of the version that represents the key. So any leader shows the same.
//
// # Requests
//
// A reply comes in the step in which every earlier decision is durable, so an Upserted has
// its epoch. Abandoned takes effects back and drops their replies: the driver then repeats
// the inputs. If an input is repeated while its reply is pending, it is answered once.
//
// A version remembers the last 32 requests that made or changed it, and a stage the last
// 32 requests that changed nothing. So the current state of the stage never decides a late
// copy of such a request. A cancel of many versions takes several effects. Only the last
// effect has the mark of the request, so the mark shows that the whole cancel was done.
package queue
