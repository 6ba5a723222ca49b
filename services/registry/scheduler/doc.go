// Package scheduler orders the pending reservations in groups and decides which of them
// the next scheduling cycle tries.
//
//	Add, Remove ──▶ ┌───────────┐ ◀── Tick, Wake, InventoryChanged
//	                │ Scheduler │ ──▶ StartCycle: the candidates, in order
//	CycleDone  ───▶ └───────────┘ ──▶ the outcome of each candidate, for its owner
//
// It promises:
//
//   - Each group is strict. A cycle has a prefix of a group as candidates, and a
//     reservation is tried behind its head only if everything before it is tried, too.
//   - Groups do not block each other. Each cycle has the heads of all groups, whatever
//     triggered it, so freed capacity goes by precedence and not to the group that is
//     woken first.
//   - A head that did not fit is tried again on the next wake-up. A new or changed head,
//     and a candidate that the last cycle did not reach, is tried at once.
//   - There is at most one cycle in flight, and a cycle fits in one message.
//
// # Order
//
// [Scheduler.Compare] is one order across all groups. Requeues come first, among
// themselves by place. All others are ordered by the [Order], then by place, a sequence
// that only rises. Parts of a batch share its place and go by their lowest worker index.
// A version that takes the place of another inherits its place and its epoch. Between its
// decision and its commit a version has no epoch, and orders behind all that have one.
// The strategies and their names are in order.go.
//
// # Scheduling cycles
//
// A cycle starts when the head of a group is due. A new or changed head is due at once. A
// head that did not fit is due after a wake-up: by the inventory's change, Config.Debounce
// after the first, or by the timer, every Config.RetryEvery. Behind each due head follows
// a prefix of its group, as long as the last cycle found capacity for, and within
// Config.CycleCandidates and Config.CycleWorkers. A candidate that is STALE or BEHIND
// needs no other trigger: the change that made it so makes its head due again. A
// candidate that the cycle did not reach (LATER) is due at once. So is a head that did not
// fit into the message (Config.CycleBytes). Config.MinDelay lies between two cycles.
//
// Read order.go and group.go first, then wake.go, cycle.go, outcome.go.
package scheduler
