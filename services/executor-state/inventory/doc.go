// Package inventory grants a lease only out of free capacity, and for all workers of a
// reservation or for none. It is the functional core of executor-state: it keeps the
// executors, their free capacity and the leases on them.
//
//	Register, Announce ──▶ ┌───────────┐ ──▶ Effect: executor, presence
//	Cycle ───────────────▶ │ inventory │ ──▶ Effect: lease for all workers or none
//	Disable, Drain, … ───▶ │           │ ──▶ Effect: request, mark on the executor
//	Changed (the view) ──▶ └───────────┘ ──▶ Effect: capacity of an ended worker freed,
//	                                          orphaned lease deleted, executor LOST
//
// It promises:
//
//   - For each executor and resource, the sum of what leases and volumes use is at most the
//     capacity. A lease is granted out of free capacity. If an executor registers again with less than
//     its leases use, nothing is granted on it until enough of its workers have ended.
//   - A lease covers all workers of its reservation or none (gang scheduling). It is one
//     [model.Effect], however many workers it has. The effect compares that the reservation
//     has not changed, and that the registry that started the cycle still leads. Granting
//     the same UID twice returns the same lease.
//   - A cycle is decided in its order, as far as one step may go. The first candidate that
//     the step does not reach is answered LATER, and so is everything behind it. See
//     [match.Limits] and [match.Refusal].
//   - Capacity is used until the assigner has recorded that the worker ended, or until the
//     lease is orphaned. Only LOST frees capacity without a confirmed end: the assigner
//     then records the workers of the LOST executor as ended. A LOST worker that may still
//     start on an executor which is not LOST keeps its share (model.TaskWorker.Unconfirmed).
//   - If an executor has workers that no lease counts, nothing is granted on it until the
//     assigner has confirmed that records expect these workers there, or until they have
//     ended. See Announce.
//   - An executor is reported as free if and only if it can be leased: package match
//     derives its eligibility, and every index and every reply depends on it.
//   - Spread, sameShape and pack hold for a reservation: a grant counts the workers of its other
//     versions that have executors. See gang.go.
//   - A volume keeps the place of a worker index after its worker has ended. It is destroyed
//     only on request, when the time for which it is kept is over, or if no worker can have
//     used it, and never while a worker on it is leased. See volume.go and volumestate.go.
//   - If the starts of three different reservations fail on an executor within ten minutes,
//     nothing is granted on it for ten minutes. It keeps its workers. At most a quarter of the
//     executors of a SKU are skipped at a time, at least one, and never all. See failing.go.
//   - If an executor does not answer start requests, nothing is granted on it until it does.
//     Its record says so once that has lasted as long as after which it would be LOST. See
//     silent.go.
//   - The same records and inputs give the same results. No decision depends on I/O, a
//     clock, random numbers or the order of a map.
//
// This package uses three packages that know no lease and no record of this core. Package
// match finds executors for a batch. Package usage counts what executors are used for and
// maps demand to SKUs. Package policy decides requests to disable, drains, claims and pools.
//
// Read core.go for the events and the state, set.go for how records and tentative decisions
// change the state, host.go, lease.go and gang.go for what follows from a record, register.go for
// executors, cycle.go for grants, settle.go for leases that end, lost.go for absence,
// failing.go and silent.go for executors that fail starts, and policies.go for the use of the three packages.
// volume.go begins the part about volumes: then read volumestate.go for their states,
// volumelist.go for the lists of executors, volumegrant.go for grants, volumeevent.go for
// events and volumeread.go for what callers see.
//
// # Executors that change
//
// An executor is what its agent declared when it registered last.
//
//   - An executor may register with less of a resource than leases use, or without the
//     resource. It keeps its workers. Nothing is granted on it, not even of other
//     resources, and it is the finding OVERCOMMITTED until enough of its workers have
//     ended. Its free capacity counts as zero, never as negative.
//   - An executor may register with other attributes or another SKU. It keeps its workers,
//     and is matched, pooled and disabled by the new attributes and SKU.
//   - SKUs are names that executors declare. A SKU without a record is matched by its name
//     all the same. A SKU without executors has nothing to grant.
//   - If an executor is LOST and no lease and no task names it, its record is deleted after
//     a while, and so are its drains. An executor that registers under the ID later is a
//     new one, with another ordinal and a higher incarnation than any before. See
//     expire.go.
//   - An executor belongs to the agent with the secret of its registration until it is
//     LOST; other agents are rejected. A superseded agent stops its workers. Until it
//     reports no workers, nothing is granted on the executor. See duplicate.go.
//
// # Absence
//
// This package decides that an absent executor is LOST (Core.loseAbsent in lost.go). The
// assigner sees the LOST executor and records each of its workers as LOST (dispatch/review.go
// of the assigner). This package then frees their capacity (settle.go). Until then, an executor
// that returns stays LOST (Core.admitReturned in register.go), so that every later leader of the
// assigner finds it LOST.
//
// An executor without presence becomes LOST after the shortest time that one of its pools
// allows. Executors of one pool that become absent together are evaluated together. If more
// than a share of the pool become absent within a window, none of them becomes LOST. The
// window is one presence TTL plus the time that etcd takes to expire so many leases.
// Executors that were drained or claimed are expected to disappear, so they are no part of a
// mass loss: with a drain an operator states that an executor will not return.
//
// A [Core] is a [model.Core]: one goroutine owns it. One function, Core.set, changes its
// records and everything that follows from them, whether a change comes from the view, from
// a decision or from undoing a decision.
package inventory
