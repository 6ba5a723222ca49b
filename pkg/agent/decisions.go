package agent

import (
	"time"

	"berth.dev/pkg/model"
)

// Decisions applies the rules by which an Agent decides on requests, without processes,
// disk and clock. Simulations use it, so that a property of a simulated host also holds
// for a real host. It is not safe for concurrent use.
type Decisions struct{ ledger *ledger }

// NewDecisions returns the Decisions of an executor that has received no request yet.
// nonce is the nonce of the executor's registrations.
func NewDecisions(executor, nonce string) *Decisions {
	return &Decisions{newLedger(executor, nonce, defaultTombstoneAge)}
}

// Permit checks that a request carries the nonce of the registration. The error is a
// *fault.Error with reason PERMISSION_DENIED.
func (d *Decisions) Permit(nonce string) error { return d.ledger.permit(nonce) }

// Begin starts an incarnation. From then on Submit and Stop refuse requests of a lower
// term.
func (d *Decisions) Begin(incarnation, term int64) { d.ledger.begin(incarnation, term) }

// Submit decides on a start request. If start is true, the caller must start the worker,
// and call Started or NotStarted. If start is false, the request is a repeat. Errors
// are *fault.Error. An error of kind Unavailable means that the worker still runs at the
// epoch older: the caller must stop that worker first.
func (d *Decisions) Submit(term, incarnation int64, w model.Worker, epoch int64, uid string,
	now time.Time) (start bool, older int64, err error) {
	_, start, before, err := d.ledger.submit(term, incarnation, identity{w, epoch}, uid, now)
	if before != nil {
		older = before.Epoch
	}
	return start, older, err
}

// NotStarted records that a worker could not be started. A later request may start the
// worker again.
func (d *Decisions) NotStarted(w model.Worker, epoch int64) {
	d.ledger.startFailed(identity{w, epoch})
}

// Started records that a worker was started and returns its state. With readiness REPORTED
// that is STARTING until the caller calls Ready; otherwise it is RUNNING.
func (d *Decisions) Started(w model.Worker, epoch int64, r model.Readiness, now time.Time) model.WorkerState {
	id := identity{w, epoch}
	d.ledger.launch(id)
	d.ledger.started(id, r, true, now)
	return d.ledger.entries[id].state
}

// Ready records that a worker has reported that it is ready, and reports whether its state
// changed from STARTING to RUNNING.
func (d *Decisions) Ready(w model.Worker, epoch int64, now time.Time) bool {
	return d.ledger.ready(identity{w, epoch}, now)
}

// Stop decides on a stop request and reports whether the worker is present. If the worker
// is not present, Stop buries it, so that it is never started, and reports whether it never
// was. Errors are *fault.Error.
func (d *Decisions) Stop(term, incarnation int64, w model.Worker, epoch int64, now time.Time) (there, neverStarted bool,
	err error) {
	id := identity{w, epoch}
	e, err := d.ledger.stop(term, incarnation, id)
	if err == nil && e == nil {
		d.ledger.bury(tombstone{identity: id, NeverStarted: true, At: now})
		neverStarted = d.ledger.neverStarted(id)
	}
	return e != nil, neverStarted, err
}

// Ended records how a worker ended. The worker is never started again at this epoch.
func (d *Decisions) Ended(w model.Worker, epoch int64, x Exit, now time.Time) {
	d.ledger.ended(identity{w, epoch}, x, now)
}

// Known records that the end of a worker is durable at the control plane.
func (d *Decisions) Known(w model.Worker, epoch int64) { delete(d.ledger.entries, identity{w, epoch}) }

// Adopt adds a worker that an earlier agent started and that has not ended. state is
// STARTING, RUNNING or EVICTING.
func (d *Decisions) Adopt(w model.Worker, epoch int64, uid string, state model.WorkerState, since time.Time) {
	d.ledger.adopt(identity{w, epoch}, uid, state, since)
}

// Bury adds a tombstone that an earlier agent wrote: the worker is never started at this
// epoch, and perhaps never was.
func (d *Decisions) Bury(w model.Worker, epoch int64, neverStarted bool, at time.Time) {
	d.ledger.bury(tombstone{identity: identity{w, epoch}, NeverStarted: neverStarted, At: at})
}

// AdoptOn records that an adopted worker is on a volume.
func (d *Decisions) AdoptOn(w model.Worker, epoch int64, volume string) {
	d.ledger.entries[identity{w, epoch}].volume = volume
}

// BuryVolume adds the tombstone of a volume that an earlier agent destroyed.
func (d *Decisions) BuryVolume(id string, at time.Time) { d.ledger.bury(tombstone{Volume: id, At: at}) }

// HasVolume records whether a volume has a directory.
func (d *Decisions) HasVolume(id string, exists bool) { d.ledger.observe(id, exists) }

// Occupy decides whether a worker that Submit accepted may start on a volume. With create,
// the caller makes the directory if it does not exist, and calls HasVolume. Errors are
// *fault.Error.
func (d *Decisions) Occupy(w model.Worker, epoch int64, volume string, create bool) error {
	return d.ledger.occupy(identity{w, epoch}, volume, create)
}

// Drop decides on a request to destroy volumes. It returns those whose directories the caller
// must remove, before it calls Removed. They have tombstones from now on. Errors are
// *fault.Error.
func (d *Decisions) Drop(term, incarnation int64, ids []string, now time.Time) (fresh []string, err error) {
	fresh, err = d.ledger.drop(term, incarnation, ids)
	for _, id := range fresh {
		d.ledger.destroy(id, now)
	}
	return fresh, err
}

// Resume returns the volumes with a tombstone that still have a directory. The caller must
// remove them, and then call Removed.
func (d *Decisions) Resume() []string { return d.ledger.resume() }

// Removed records that a destroyed volume has no directory any more.
func (d *Decisions) Removed(id string) { d.ledger.removed(id) }

// ListDue reports whether the agent must send a list of its volumes.
func (d *Decisions) ListDue() bool { return d.ledger.volumesDue }

// List returns the list of the volumes: their IDs, the destroyed ones, and its sequence. It is
// sent even if no list is due.
func (d *Decisions) List() (sequence int64, ids, gone []string) {
	d.ledger.volumesDue = true
	list := d.ledger.listVolumes()
	return list.GetSequence(), list.GetIds(), list.GetGone()
}

// Received records that the leader of executor-state has received the list with a sequence.
func (d *Decisions) Received(sequence int64) { d.ledger.listReceived(sequence) }
