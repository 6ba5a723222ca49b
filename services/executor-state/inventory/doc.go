// Package inventory is the functional core of executor-state: which executors
// there are, what they have free, and which batch is granted which of them.
//
//	Register, Announce ──▶ ┌───────────┐ ──▶ Effect: executor, presence
//	Cycle ───────────────▶ │ inventory │ ──▶ Effect: lease, all workers or none
//	Disable, Drain, … ───▶ │           │ ──▶ Effect: request, executor's mark
//	Changed (the view) ──▶ └───────────┘ ──▶ Effect: worker's share given back,
//	                                          orphan swept, executor LOST
//
// It promises:
//
//   - Σ used ≤ capacity, for every executor and resource: a lease is granted
//     out of what is free, and an executor that registers again with less than
//     it has given away is given no work until it has room again.
//   - A strict lease covers all workers of its reservation or none. It is one
//     [model.Effect] however many workers it has, and it compares that the
//     reservation is still what was decided on and that the registry that
//     started the cycle still leads. The same uid asked twice gives the same lease.
//   - A cycle is decided in its order, as far as one step may go: what it does not
//     get to is answered LATER, with all that is behind it. See
//     [match.Limits] and, for why cycles get to every candidate, [match.Refusal].
//   - Capacity is used until the assigner says that the worker has ended, or
//     until a lease turns out to be nobody's. Nothing here frees it by a clock.
//   - What lives on an executor and no lease counts is in its way: one that comes
//     with workers is granted something once the assigner has said that records
//     want them there, or they are gone. What is told of them comes with Announce.
//   - An executor is shown as free exactly when it can be granted: its standing,
//     derived in one place, decides whether it may be given work, and every
//     index and every answer goes by it.
//   - A request to disable holds until it expires or is undone, for executors
//     that come later or come back too; several on one executor count each for
//     itself. What is claimed for scale-down held no worker when it was
//     disabled, and is given none.
//   - The same records and inputs give the same answers: there is no I/O, no
//     clock, no randomness and no map order in any decision.
//
// Package match finds executors for a batch, with roles and sections; package usage
// counts what executors are used for and maps demand to SKUs. Here are the records, the
// leases, and what is decided.
//
// # Executors that change
//
// An executor is what its agent said when it registered last.
//
//   - With less of a resource than leases hold of it, or without the resource, it
//     keeps its workers and what they hold. It is granted nothing, not even of
//     other resources, and is the finding OVERCOMMITTED until enough of them have
//     ended. What is free of it counts as nothing, never as less.
//   - With other attributes or another SKU it keeps its workers, and is matched,
//     pooled and disabled by what it says now.
//   - SKUs are names that executors give: where no record describes one, its
//     executors are matched by that name all the same. One of which no executor
//     is left has none to grant, and nothing else changes.
//   - One that is LOST, and that neither a lease nor a task names any more, is
//     forgotten after a while, drains of it included: its record is deleted. Who
//     registers under its id later is another executor, with another ordinal and a
//     higher incarnation than any before. See forget.go.
//   - An executor belongs to the agent with the secret of its registration until
//     it is LOST; other agents are refused. An agent that was superseded by one
//     that is present stops its workers, and until it reports none the executor is
//     given nothing. See secret.go.
//
// # Requests to disable
//
// A request is a [model.Disable] record under the id of its call. A repeat finds
// the record and acts no more, for [model.KeepDisable] after its end too; another
// call under that id is refused. Calls to undo requests are kept likewise. Those
// that hold are bounded in number. One that goes by attributes closes the classes that
// it selects: it moves no executor, whatever it selects. See closed.go.
//
// A drain is a request for one executor that also marks its record, in the same
// effect, so that the assigner evicts; a claim is one whose executors the core
// picks.
//
// Jobs with workers on the executors are told by EXECUTOR_DISABLED: one event for
// each request, executor and lease, in effects that follow the request and move
// its mark. They are told of what lies there then. An executor that comes under a
// request later, for its agent registers with other attributes, keeps on its record
// of which requests its jobs are still to be told.
//
// # Pools
//
// An executor is in each pool whose attributes are its own and, where no pool of
// that name is kept, in the one that its attribute `pool` names. It may be away as
// long as the least patient of its pools says. Executors of one pool that go
// together are judged together: see [Core.Findings] and MASS_LOSS. Whoever went
// within some window in which more of the pool went than may is held back; a window
// is one TTL, and what etcd takes to let so many leases run out. Executors that were
// drained or claimed are expected to go and make no mass loss: draining is how an
// operator says that an executor is gone for good.
//
// A [Core] is a [model.Core]: one goroutine owns it. Memory is records and
// indexes over them, written by one function, [Core.set], whether a record
// comes from the view, from a decision or from taking a decision back.
package inventory
