// Package cell makes a Berth cluster a cell of another one, the parent: an executor that runs
// the workers of whole reservations. It is `berth cell`.
//
//	parent ── offers, starts and stops ──▶ agent.Agent ──▶ Driver ──▶ gateway of the child
//	       ◀── answers, reports ─────────              ◀── events ──
//
// The reservation of the parent with UID u, job j and stage s is the reservation u of the job
// {id}.{j} and stage s in the child. One goroutine (see hold.go) makes all calls to the child
// about it:
//
//	offer PENDING     it upserts the reservation with hold HOLD, and waits until it is HELD
//	                  (answer ACCEPTED) or until the child gives a reason why it is pending
//	                  (cancel, answer REJECTED)
//	offer ACCEPTED    it extends expireAt as long as the parent confirms the offer
//	offer BOUND       it removes expireAt: what runs must not end because an agent is away
//	first Start       it binds the reservation with the task; every Start waits for the outcome,
//	                  but not until the worker runs
//	all stopped       if that was before the bind, it cancels the reservation instead
//	offer ended       it cancels the reservation, unless a worker was started
//
// So nothing that the cell promised outlives its agent, or a parent that is cut off, by more
// than Config.TTL, except what the parent has decided to use. expireAt is a time of the host of
// the agent: the clocks of this host and of the child's registry must agree within a few
// seconds.
//
// A worker has the same index in the child as in the parent, because its task may depend on the
// index. Its number in the child is the next one that the child's stage has not used: another
// reservation of the parent may have used the index before. The other variables of the worker are
// those of the child's reservation.
//
// The driver watches the jobs of the child over connections of their own, at most 500 jobs over
// each: a gateway limits the streams of a connection, and watches must not block the calls.
//
// The child never restarts or replaces a worker: the parent does, with another reservation. A
// worker that the child LOST, or EVICTED without a request of the parent, is FAILED with the
// reason CELL_WORKER_LOST. The child stops a worker with the grace period of its task, or with a
// shorter one of the parent.
//
// The driver keeps no state on disk. Labels of the child's reservations have all that the next
// agent needs (see label.go), except which ends of workers the parent has acknowledged: the agent
// keeps that in its directory.
package cell
