// Package audit proves, from the records alone, that Berth keeps its promises.
// It reads what etcd holds, revision by revision, and knows nothing of the
// services that wrote it: whatever they thought, the records must add up.
//
//	store ──snapshot, then every revision──▶ Auditor ──▶ Violations
//	                                            └─once nothing moves─▶ Quiesced
//
// It promises: every rule below is judged at every revision it is told of, and
// a violation names the revision and what broke the rule. What happened while
// it was not watching (before the first snapshot, or before one that a
// compaction made necessary) is judged only by what it left behind: the rules
// about single steps are silent there, those about states are not.
//
//	CAPACITY           used ≤ capacity of each executor and resource: no lease
//	                   makes it more. A record that shrinks below what is used
//	                   is no violation; using more of it then is
//	SHARE              what an executor sets aside for a role stays out of reach of
//	                   others: with what of each share its role does not use, no
//	                   lease makes used more than capacity. Shares that came with
//	                   a record newer than the leases are no violation
//	ALL_OR_NONE        the revision that creates a lease, or completes a task,
//	                   has every worker of the reservation in it, in order
//	AVOID              a lease names no executor that the reservation's
//	                   `constraints.avoid` names
//	ONE_ASSIGNMENT     a worker has at most one assignment that has not ended
//	ONE_PER_INDEX      nor have two numbers of one worker index, under one name, unless
//	                   the older is being stopped because it was cancelled,
//	                   alone or with its batch
//	PLACEMENT          a worker stays on the executor that it was leased
//	WORKER_STATE       workers move along model.WorkerState.MayBecome
//	STARTED_TWICE      a worker that was started is not started by another lease,
//	                   until the job's last record was deleted: numbers begin
//	                   again then
//	RESERVATION_STATE  reservations move forwards and stay where they ended
//	IMMUTABLE          what a reservation asks for never changes, but for the
//	                   workers that go ahead as a part of it; what was cancelled
//	                   one by one stays so
//	ORIGIN             a requeue is of a worker that its living parent gave up,
//	                   with the next number, once; a part stands in the place of
//	                   its parent; a round begins when the one before has ended
//	NEVER_LOST         nothing that has not ended is deleted
//	NO_REVIVAL         what ended gets no lease and no task, what was leased no
//	                   second lease
//	RELEASE            capacity is given back only for workers that have ended,
//	                   and for leases that nobody took
//	TERM               terms of a service rise
//	FENCE              every write carries the chain of the term that leads
//	ORDER              whatever stood before a reservation of its group when the
//	                   cycle started is not left waiting by its grant
//	CYCLE              the cycles that a leader of executor-state grants by were
//	                   started one after the other: it takes none after a later one
//	RECORD             every record can be read
//
// Quiesced judges what must hold once nothing is in flight: LEASE_OWNER, every
// leased worker is somebody's; TASK_OWNER, every task has its reservation.
//
// The order is the default one, of scheduler.OrderByEpoch: requeues before all else.
package audit
