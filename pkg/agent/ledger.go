package agent

import (
	"crypto/subtle"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// identity is the full identity of a worker at an executor.
type identity struct {
	model.Worker
	Epoch int64
}

// tombstone says that a worker does not run and is never started, at this epoch or a
// lower one.
type tombstone struct {
	identity
	At time.Time
}

const (
	// tombstoneCount is the number of tombstones that are kept whatever their age.
	tombstoneCount = 1024
	// defaultTombstoneAge is the default of Config.TombstoneAge.
	defaultTombstoneAge = 24 * time.Hour
)

// entry is a worker that is reported: it has not ended, or its end is not yet durable at
// the control plane.
type entry struct {
	identity
	uid      string
	state    model.WorkerState
	exitCode *int32
	signal   int32
	problem  string
	since    time.Time
	// sent is the sequence of the first report with this state, 0 without one. confirmed
	// is set once that report, or a later one, was answered.
	sent      int64
	confirmed bool
	// answered is set if the answer to a request has this state. The state is no news then.
	// But until a report has it, the agent does not know whether the answer arrived.
	answered bool
}

// floor is the highest epoch seen of a worker's name.
type floor struct {
	epoch int64
	// ended is set if the worker of that epoch has ended or was stopped before it began.
	ended bool
}

// ledger decides which requests are accepted and what is reported. It does no I/O, reads
// no clock and has no lock: its Agent guards it.
type ledger struct {
	executor string
	// nonce is the nonce of this agent's registrations.
	nonce       string
	incarnation int64
	term        int64
	sequence    int64
	entries     map[identity]*entry
	floors      map[model.Worker]floor
	// tombstones are in order of age, the oldest first.
	tombstones   []tombstone
	tombstoneAge time.Duration
}

func newLedger(executor, nonce string, tombstoneAge time.Duration) *ledger {
	return &ledger{
		executor: executor, nonce: nonce, tombstoneAge: tombstoneAge,
		entries: map[identity]*entry{}, floors: map[model.Worker]floor{},
	}
}

// begin starts an incarnation. The sequence does not restart, so that an answer that is
// still on its way sorts before the reports to come.
func (l *ledger) begin(incarnation, term int64) {
	l.incarnation = incarnation
	l.raise(term)
}

// raise raises the lowest accepted term of the assigner.
func (l *ledger) raise(term int64) { l.term = max(l.term, term) }

// permit checks that the sender of a request knows the nonce of the registration: any
// other sender could claim any term. An agent that is not registered yet skips the
// check, since it accepts no request: admit then refuses it as one for another
// incarnation.
func (l *ledger) permit(nonce string) error {
	if l.incarnation == 0 || l.nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(l.nonce)) == 1 {
		return nil
	}
	return fault.New(fault.Denied, fault.ReasonPermissionDenied,
		"the request does not carry the nonce of the registration of %s", l.executor)
}

// admit checks the incarnation and the term of a request, and raises the term.
func (l *ledger) admit(term, incarnation int64) error {
	if incarnation != l.incarnation || incarnation == 0 {
		return fault.New(fault.Conflict, fault.ReasonOtherIncarnation,
			"the request is for incarnation %d of %s, which has incarnation %d", incarnation, l.executor, l.incarnation)
	}
	if term < l.term {
		return fault.New(fault.Conflict, fault.ReasonLowerTerm, "the request has term %d, lower than term %d", term, l.term)
	}
	l.term = term
	return nil
}

// submit decides on a start request. If fresh is set, the caller must start the worker
// and then call running or startFailed. Otherwise the entry has the worker's state. If a
// worker of a lower epoch still runs, the error is Unavailable and older is that worker,
// which the caller must stop.
func (l *ledger) submit(term, incarnation int64, id identity, uid string, now time.Time) (e *entry, fresh bool,
	older *entry, err error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, false, nil, err
	}
	seen, known := l.floors[id.Worker]
	if known && id.Epoch < seen.epoch {
		return nil, false, nil, fault.New(fault.Conflict, fault.ReasonLowerEpoch,
			"epoch %d of %s is lower than epoch %d", id.Epoch, id.Worker, seen.epoch)
	}
	if e := l.entries[id]; e != nil && e.state != model.WorkerEvicted {
		return e, false, nil, nil
	}
	if known && id.Epoch == seen.epoch && seen.ended {
		return nil, false, nil, fault.New(fault.Conflict, fault.ReasonStopped,
			"%s of epoch %d was stopped or has ended: it is never started again", id.Worker, id.Epoch)
	}
	// A name without a floor has no entry. Few names have one, so that the search is rare.
	if known {
		for _, before := range l.entries {
			if before.Worker == id.Worker && !before.state.Terminal() {
				return nil, false, before, fault.New(fault.Unavailable, fault.ReasonUnavailable,
					"%s still runs at epoch %d and is being stopped", id.Worker, before.Epoch)
			}
		}
	}
	l.floors[id.Worker] = floor{epoch: id.Epoch}
	e = &entry{identity: id, uid: uid, state: model.WorkerStarting, since: now}
	l.entries[id] = e
	return e, true, nil, nil
}

// live returns the number of workers that have not ended.
func (l *ledger) live() (n int) {
	for _, e := range l.entries {
		if !e.state.Terminal() {
			n++
		}
	}
	return n
}

// adopt adds a worker that an earlier agent started.
func (l *ledger) adopt(id identity, uid string, state model.WorkerState, since time.Time) {
	l.entries[id] = &entry{identity: id, uid: uid, state: state, since: since}
	if id.Epoch > l.floors[id.Worker].epoch {
		l.floors[id.Worker] = floor{epoch: id.Epoch}
	}
}

// running records that the worker was started. answered is set if a request waits for
// that, and its answer will have the state.
func (l *ledger) running(id identity, answered bool, now time.Time) {
	if e := l.entries[id]; e != nil && e.state == model.WorkerStarting {
		e.become(model.WorkerRunning, now)
		e.answered = answered
	}
}

// startFailed records that the worker could not be started; the start may be repeated.
// The floor stays, since it also covers lower epochs.
func (l *ledger) startFailed(id identity) { delete(l.entries, id) }

// stop decides on a stop request. The caller must stop a worker that has not ended. If
// the entry is nil, the caller must make a tombstone durable and bury it, unless there
// is one.
func (l *ledger) stop(term, incarnation int64, id identity) (*entry, error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, err
	}
	return l.entries[id], nil
}

// isOver reports whether the worker is known to have ended, or is refused for its epoch.
func (l *ledger) isOver(id identity) bool {
	seen := l.floors[id.Worker]
	return id.Epoch < seen.epoch || id.Epoch == seen.epoch && seen.ended
}

// hasTombstone reports whether a tombstone covers the worker, its own or one of a later
// epoch. A worker that is only refused for a later epoch has none: after a restart the
// agent does not know that epoch.
func (l *ledger) hasTombstone(id identity) bool {
	seen := l.floors[id.Worker]
	if seen.ended && id.Epoch <= seen.epoch {
		return true
	}
	return id.Epoch < seen.epoch && slices.ContainsFunc(l.tombstones, func(t tombstone) bool { return t.identity == id })
}

// evicting records that the worker was signalled to stop, and reports whether that is
// news.
func (l *ledger) evicting(id identity, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state >= model.WorkerEvicting {
		return false
	}
	e.become(model.WorkerEvicting, now)
	return true
}

// ended records how the worker ended, and buries it. It ignores a second end.
func (l *ledger) ended(id identity, exit Exit, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state.Terminal() {
		return false
	}
	e.exitCode, e.signal, e.problem = exit.Code, exit.Signal, exit.Problem
	e.become(exit.state(), now)
	l.bury(tombstone{id, now})
	return true
}

// bury adds a tombstone.
func (l *ledger) bury(t tombstone) {
	if l.hasTombstone(t.identity) {
		return
	}
	if !l.isOver(t.identity) {
		l.floors[t.Worker] = floor{epoch: t.Epoch, ended: true}
	}
	l.tombstones = append(l.tombstones, t)
	l.prune(t.At)
}

// prune drops tombstones that are both old and not among the newest.
func (l *ledger) prune(now time.Time) {
	for len(l.tombstones) > tombstoneCount && now.Sub(l.tombstones[0].At) > l.tombstoneAge {
		t := l.tombstones[0]
		l.tombstones = l.tombstones[1:]
		if l.floors[t.Worker] == (floor{epoch: t.Epoch, ended: true}) && l.entries[t.identity] == nil {
			delete(l.floors, t.Worker)
		}
	}
}

func (e *entry) become(state model.WorkerState, now time.Time) {
	e.state, e.since = state, now
	e.sent, e.confirmed, e.answered = 0, false, false
}
