// Package scheduler never lets a reservation overtake the head of its own group, and
// never lets one group wait for another. It orders the pending reservations in groups and
// decides which of them the next scheduling cycle tries.
//
//	Add, Remove ──▶ ┌───────────┐ ◀── Tick, Wake, InventoryChanged
//	                │ Scheduler │ ──▶ StartCycle: the candidates, in order
//	CycleDone  ───▶ └───────────┘ ──▶ the outcome of each candidate, for its owner
//
// It promises:
//
//   - Each group is strict. The candidates that a cycle has of a group are a prefix of
//     the group. So a cycle tries a reservation behind its head only if it also tries
//     everything before the reservation.
//   - Groups do not block each other. Each cycle has the heads of all groups as
//     candidates, whatever triggered it. So freed capacity goes to the first candidate in
//     the order of all groups, and not to the group that is woken first.
//   - No reservation overtakes an earlier one of another group that a cycle left out. If
//     such a reservation may come next, because all candidates before it in its group were
//     granted, the cycle ends at its place, and the next cycle has it.
//   - A reservation with a volume has a group of its own, with its key and its first worker
//     index. So a worker index that waits for the executor of its volume blocks no other.
//   - A head that did not fit triggers no cycle until the next wake-up. It is a candidate
//     in every cycle that another group triggers before. A new or changed head, and a
//     candidate that the last cycle did not reach, triggers a cycle at once.
//   - There is at most one cycle in flight, and a cycle fits in one message. If the heads
//     of all groups do not fit in one message, the next cycle has the others.
//
// # Order
//
// [Scheduler.Compare] is one order across all groups. Requeues come first, ordered among
// themselves by place, unless their reservation has Requeue BY_ORDER. All other reservations
// are ordered by the [Order], then by place, a sequence that only rises. The parts of a batch
// share its place and are ordered by their lowest worker index. A version that takes the place
// of another version inherits its place and its epoch. Between its decision and its commit a version has no epoch,
// and comes after all versions that have an epoch. The strategies and their names are in
// order.go.
//
// # Scheduling cycles
//
// A cycle starts when the head of a group is due. A due head triggers a cycle; the cycle
// also has the heads that are not due. A new or changed head is due at once. A head that
// did not fit is due after a wake-up: Config.Debounce after the first change of the
// inventory, or when the timer fires, every Config.RetryEvery. Behind each due head
// follows a prefix of its group. The prefix is as long as the last cycle found capacity
// for, and one more, within Config.CycleCandidates and Config.CycleWorkers.
//
// A cycle leaves out reservations behind the depth of their group, beyond the bounds, or of a
// group that is not due. The last candidate of such a group says where its next reservation
// stands (Candidate.NextAt). If that candidate is granted, executor-state grants nothing from
// there on. A best-effort batch of which some workers fit ends the cycle, too
// (Candidate.Splits), because its part is not in the cycle. So freed capacity goes to the same
// reservations as if one cycle tried all of them in order. Each cycle that ends so has
// granted or split a reservation.
//
// A candidate that is STALE or BEHIND needs no other trigger: the change that made it so
// makes its head due again. A candidate that the cycle did not reach (LATER) makes its
// head due at once. So does a head that did not fit into the message (Config.CycleBytes).
// At least Config.MinDelay lies between the starts of two cycles.
//
// Read order.go and group.go first, then wake.go, cycle.go, outcome.go.
package scheduler
