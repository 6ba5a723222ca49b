// Package audit checks every rule below at every revision of etcd that it reads, and names
// the revision and the record of each violation. It uses only the records and does not
// depend on the services that wrote them.
//
//	store ──snapshot, then every revision──▶ Auditor ──▶ Violations
//	                                            └─once nothing is in flight─▶ Quiesced
//
// In the rules, a version is the reservation of one uid: every requeue, part and round of a
// reservation has its own uid. The chain of a service is a record that every transaction of
// the service writes.
//
// The auditor does not see the revisions before its first snapshot. If etcd compacts
// revisions before the auditor reads them, the auditor continues with a new snapshot. At a
// snapshot it checks the rules about states and skips the rules about single steps.
//
//	CAPACITY           after every lease, used ≤ capacity for each executor and
//	                   resource. Leases and volumes use; a worker on a volume uses
//	                   nothing in addition. An executor record that shrinks below the
//	                   use is not a violation, and neither is a volume whose disk comes
//	                   to a full executor, but a later lease that increases the use is
//	SHARE              the reserved share of a role stays free for that role: after
//	                   every lease, used plus the unused part of each share ≤
//	                   capacity. The rule ignores the shares of a record that is
//	                   newer than all leases on the executor
//	ALL_OR_NONE        a new lease, and a task when it becomes complete, contain
//	                   every worker of the reservation, in order
//	AVOID              a lease names no executor that the reservation's
//	                   `constraints.avoid` names
//	SPREAD             a lease adds no worker where `spread` or `sameShape` does not allow
//	                   one in addition to the leased workers of all versions of the
//	                   reservation. Workers on LOST executors do not count, and neither
//	                   do workers that start again where their volume is
//	ONE_ASSIGNMENT     a worker has at most one assignment that has not ended
//	ONE_PER_INDEX      two worker numbers of one index and one reservation name do
//	                   not both have an unfinished assignment, unless the older
//	                   worker is being stopped because it was cancelled, alone or
//	                   with its batch
//	PLACEMENT          a worker stays on the executor of its lease
//	WORKER_STATE       workers move along model.WorkerState.MayBecome
//	STARTED_TWICE      two leases never start the same worker. The rule starts anew
//	                   when the job's last record is deleted, because the worker
//	                   numbers then restart
//	RESERVATION_STATE  reservations only move forward, and not out of an end state; a
//	                   reservation ends only after its workers have ended
//	IMMUTABLE          the constraints of a reservation never change, and after its
//	                   dispatch neither do its task and policies. Its workers
//	                   change only if some are split off as a part; workers that were
//	                   cancelled one by one stay cancelled
//	ORIGIN             a requeue contains workers that its parent or another requeue
//	                   of its parent gave up before it ended, each with an unused
//	                   number of its index and only once: the version that gave the
//	                   worker up records that it was queued again. The reservation
//	                   restarts or replaces workers that ended in this way, its
//	                   limit is not reached, and the requeue waits for the delay
//	                   that its failures call for. A part has the queue position of
//	                   its parent; a round begins after the previous round has ended.
//	                   A requeue and a round have the task and the policies of the
//	                   latest request that their predecessor records
//	NEVER_LOST         a reservation or worker is deleted only after it has ended
//	NO_REVIVAL         an ended reservation gets no lease and no task, a leased one
//	                   no second lease
//	RELEASE            capacity is released only for workers that have ended,
//	                   and for leases without a task
//	TERM               each new leader of a service has a higher term
//	FENCE              every write also writes the chain of its service, with the
//	                   leader's term
//	ORDER              no reservation is granted while another, which was before it in
//	                   the queue of its group when the cycle started, is still queued.
//	                   A reservation with a notBefore counts from a minute after it, and
//	                   one is not queued while cells hold executors for it
//	CYCLE              a leader of executor-state grants cycles in the order in which
//	                   they started
//	HOLD               a held reservation gets a task only after a bind, which happens
//	                   once, with its lease or a cell that accepted its offer, and
//	                   before the end of its hold. A bind chooses only a cell that
//	                   accepted. A version that derives from another is bound if that
//	                   one is
//	OFFER              a reservation with constraints.cells is leased exactly one cell, and
//	                   only if that has accepted its offer; any other reservation is
//	                   leased only hosts. An offer is BOUND at most at one cell, and from
//	                   the grant on, which releases the other cells. Its number rises
//	                   each time the cells are asked, and an answer is never taken back.
//	                   After a grant it exists until the reservation has ended
//	VOLUME_HOME        a leased worker on a volume is on the executor of its index's
//	                   volume, which holds all that the worker uses. An ID has one
//	                   executor, and another one only after the first is LOST
//	VOLUME_ONE         at most one leased worker is on a volume
//	VOLUME_KEPT        the entry of a volume is deleted only while it is DESTROYING or
//	                   LOST. A volume becomes DESTROYING only if its deletion was
//	                   requested, its keepFor is over, or its only worker ended and
//	                   certainly never ran, and never while a worker on it is leased
//	RECORD             every record can be decoded
//
// Quiesced checks the rules that hold once nothing is in flight. LEASE_OWNER: every leased
// worker belongs to a reservation and a task. TASK_OWNER: every task has its reservation.
// OFFER: every offer is of a reservation that has not ended.
//
// ORDER expects the default order of a queue, scheduler.OrderByEpoch: requeues come before
// all other reservations.
package audit
