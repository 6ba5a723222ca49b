package agent

import (
	"time"

	"berth.dev/pkg/model"
)

// Decisions are what an Agent decides orders by, alone: no process, no disk and
// no clock. They are for those who simulate agents, so that what is shown of a
// simulated host holds for a real one. They are for one goroutine.
type Decisions struct{ ledger *ledger }

// NewDecisions makes those of an executor that has seen no order yet, and that
// registers with a nonce.
func NewDecisions(executor, nonce string) *Decisions {
	l := newLedger(executor, defaultTombstoneAge)
	l.nonce = nonce
	return &Decisions{l}
}

// Permit decides whether an order is looked at: it has to carry the nonce of the
// registration. The error is a *fault.Error of reason PERMISSION_DENIED.
func (d *Decisions) Permit(nonce string) error { return d.ledger.permit(nonce) }

// Begin starts an incarnation; orders of a lower term of the assigner than that
// are refused.
func (d *Decisions) Begin(incarnation, term int64) { d.ledger.begin(incarnation, term) }

// Submit decides on an order to start a worker. With start the caller is to start
// it, and to say NotStarted if that fails; otherwise it was ordered before.
// Errors are *fault.Error. An Unavailable one says that the worker still runs at
// another epoch, older, and is to be stopped first.
func (d *Decisions) Submit(term, incarnation int64, w model.Worker, epoch int64, uid string, now time.Time) (start bool, older int64, err error) {
	_, start, before, err := d.ledger.submit(term, incarnation, identity{w, epoch}, uid, now)
	if before != nil {
		older = before.Epoch
	}
	return start, older, err
}

// NotStarted says that a worker could not be started: it may be ordered again.
func (d *Decisions) NotStarted(w model.Worker, epoch int64) {
	d.ledger.startFailed(identity{w, epoch})
}

// Stop decides on an order to stop a worker, and says whether it is there. If it
// is not, it is never started from now on. Errors are *fault.Error.
func (d *Decisions) Stop(term, incarnation int64, w model.Worker, epoch int64, now time.Time) (there bool, err error) {
	id := identity{w, epoch}
	e, err := d.ledger.stop(term, incarnation, id)
	if err == nil && e == nil {
		d.ledger.bury(tombstone{id, now})
	}
	return e != nil, err
}

// Ended says how a worker ended. It is never started again.
func (d *Decisions) Ended(w model.Worker, epoch int64, x Exit, now time.Time) {
	d.ledger.ended(identity{w, epoch}, x, now)
}

// Known says that the end of a worker is durable at the control plane.
func (d *Decisions) Known(w model.Worker, epoch int64) { d.ledger.leave(identity{w, epoch}) }

// Adopt takes over a worker that an earlier agent started and that still runs.
func (d *Decisions) Adopt(w model.Worker, epoch int64, uid string, since time.Time) {
	d.ledger.adopt(identity{w, epoch}, uid, model.WorkerRunning, since)
}

// Bury takes over what an earlier agent wrote down: the worker is never started.
func (d *Decisions) Bury(w model.Worker, epoch int64, at time.Time) {
	d.ledger.bury(tombstone{identity{w, epoch}, at})
}
