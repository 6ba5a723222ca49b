// Package audit checks from the records alone that Berth keeps its promises. It
// reads the history of etcd, revision by revision, and does not depend on the
// services that wrote it.
//
//	store ──snapshot, then every revision──▶ Auditor ──▶ Violations
//	                                            └─once nothing is in flight─▶ Quiesced
//
// It promises to check every rule below at every revision that it gets, and a
// violation names the revision and the record that broke the rule. The auditor does
// not see the revisions before its first snapshot, or before a snapshot that a
// compaction made necessary. At a snapshot it checks the rules about states and skips
// the rules about single steps.
//
//	CAPACITY           used ≤ capacity of each executor and resource after every
//	                   lease. An executor record that shrinks below the use is
//	                   not a violation; a later lease that increases the use is
//	SHARE              the reserved share of a role stays free for that role: used
//	                   plus the unused part of each share ≤ capacity after every
//	                   lease. Shares of a record that is newer than the leases are
//	                   not a violation
//	ALL_OR_NONE        the revision that creates a lease, or completes a task,
//	                   has every worker of the reservation in it, in order
//	AVOID              a lease names no executor that the reservation's
//	                   `constraints.avoid` names
//	ONE_ASSIGNMENT     a worker has at most one assignment that has not ended
//	ONE_PER_INDEX      two numbers of one worker index, under one name, do not both
//	                   have such an assignment, unless the older is being stopped
//	                   because it was cancelled, alone or with its batch
//	PLACEMENT          a worker stays on the executor of its lease
//	WORKER_STATE       workers move along model.WorkerState.MayBecome
//	STARTED_TWICE      a worker that was started is not started by another lease,
//	                   until the job's last record is deleted, which resets the
//	                   numbers
//	RESERVATION_STATE  reservations only move forward, and not out of an end state
//	IMMUTABLE          the request of a reservation never changes, except for the
//	                   workers that are split off as a part of it; workers that were
//	                   cancelled one by one stay cancelled
//	ORIGIN             a requeue contains workers that its unfinished parent gave up,
//	                   each with the next number and only once; a part has the queue
//	                   position of its parent; a round begins when the previous one
//	                   has ended
//	NEVER_LOST         a reservation or worker is deleted only after it has ended
//	NO_REVIVAL         an ended reservation gets no lease and no task, a leased one
//	                   no second lease
//	RELEASE            capacity is released only for workers that have ended,
//	                   and for leases without a task
//	TERM               terms of a service rise
//	FENCE              every write also writes the chain of its service, with the
//	                   leader's term
//	ORDER              a grant does not overtake a reservation that was before it in
//	                   the queue of its group when the cycle started
//	CYCLE              a leader of executor-state grants cycles in the order in which
//	                   they started
//	RECORD             every record can be decoded
//
// Quiesced checks the rules that hold once nothing is in flight: LEASE_OWNER, every
// leased worker belongs to a reservation and a task; TASK_OWNER, every task has its
// reservation.
//
// The order is the default one, scheduler.OrderByEpoch: requeues come before all others.
package audit
