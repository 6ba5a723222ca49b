// Package inventory is the functional core of executor-state: which executors there are,
// what free capacity they have, and which batch is granted which of them.
//
//	Register, Announce ──▶ ┌───────────┐ ──▶ Effect: executor, presence
//	Cycle ───────────────▶ │ inventory │ ──▶ Effect: lease for all workers or none
//	Disable, Drain, … ───▶ │           │ ──▶ Effect: request, mark on the executor
//	Changed (the view) ──▶ └───────────┘ ──▶ Effect: capacity of an ended worker freed,
//	                                          orphaned lease deleted, executor LOST
//
// It promises:
//
//   - For each executor and resource the sum of what leases use is at most its capacity. A
//     lease is granted out of free capacity. If an executor registers again with less than
//     its leases use, nothing is granted on it until enough of them have ended.
//   - A lease covers all workers of its reservation or none (gang scheduling). It is one
//     [model.Effect], however many workers it has, and it compares that the reservation has
//     not changed and that the registry that started the cycle still leads. Granting the
//     same UID twice returns the same lease.
//   - A cycle is decided in its order, as far as one step may go; what it does not get to is
//     answered LATER, with everything behind it. See [match.Limits] and [match.Refusal].
//   - Capacity is used until the assigner has recorded that the worker ended, or until the
//     lease is orphaned. No clock frees it.
//   - Nothing is granted on an executor with workers that no lease counts until the assigner
//     has confirmed that records expect them there, or until they have ended. See Announce.
//   - An executor is reported as free exactly if it can be granted: one function derives its
//     standing, and every index and every reply depends on it.
//   - The same records and inputs give the same results: there is no I/O, no clock, no
//     randomness and no map order in any decision.
//
// The packages below it know no lease and no record of this core: match finds executors for
// a batch, usage counts what executors are used for and maps demand to SKUs, and policy
// decides requests to disable, drains, claims and pools.
//
// Read core.go for the events and the state, set.go for how records and tentative decisions
// change it, host.go and lease.go for what follows from a record, register.go for
// executors, cycle.go for grants, settle.go for leases that end, lost.go for absence, and
// policies.go for the packages below.
//
// # Executors that change
//
// An executor is what its agent declared when it registered last.
//
//   - With less of a resource than leases use, or without the resource, it keeps its
//     workers. Nothing is granted on it, not even of other resources, and it is the finding
//     OVERCOMMITTED until enough workers have ended. Its free capacity counts as zero, never
//     as negative.
//   - With other attributes or another SKU it keeps its workers, and is matched, pooled and
//     disabled by the new ones.
//   - SKUs are names that executors declare. A SKU without a record is matched by that name
//     all the same. A SKU without executors has nothing to grant.
//   - An executor that is LOST and that no lease and no task names is deleted after a while,
//     with its drains. An executor that registers under its ID later is a new one, with
//     another ordinal and a higher incarnation than any before. See expire.go.
//   - An executor belongs to the agent with the secret of its registration until it is LOST;
//     other agents are rejected. A superseded agent stops its workers; until it reports none,
//     nothing is granted on the executor. See duplicate.go.
//
// # Absence
//
// An executor without presence becomes LOST after the shortest time that one of its pools
// allows. Executors of one pool that become absent together are evaluated together: if more
// of them than a share of the pool become absent within a window, none of them becomes LOST.
// The window is one presence TTL plus the time that etcd takes to expire so many leases.
// Executors that were drained or claimed are expected to disappear and are no mass loss: a
// drain is how an operator states that an executor will not return.
//
// A [Core] is a [model.Core]: one goroutine owns it. One function, Core.set, changes its
// records and everything that follows from them, whether a change comes from the view, from
// a decision or from undoing a decision.
package inventory
