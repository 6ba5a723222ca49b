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

// tombstone records that a worker does not run and is never started again, at this epoch
// or at a lower one. If Volume is set, it records instead that this volume was destroyed.
type tombstone struct {
	identity
	Volume string
	// NeverStarted is set if the worker ended or was stopped before it was started.
	NeverStarted bool
	// Acknowledged is set if the tombstone only records that the control plane has acknowledged
	// the end of the worker of a cell.
	Acknowledged bool
	At           time.Time
}

const (
	// tombstoneCount is the number of the newest tombstones that the ledger keeps regardless
	// of their age.
	tombstoneCount = 1024
	// defaultTombstoneAge is the default of Config.TombstoneAge.
	defaultTombstoneAge = 24 * time.Hour
)

// entry is a worker that the agent reports. Either the worker has not ended, or the
// control plane has not acknowledged its end yet.
type entry struct {
	identity
	uid string
	// volume is the ID of the volume on which the worker runs, or "" for none.
	volume string
	state  model.WorkerState
	// launched is set once the driver was called to start the worker.
	launched bool
	exitCode *int32
	signal   int32
	problem  string
	reason   fault.Reason
	badTask  bool
	// since is when the worker entered its state, or when the agent began the start of a
	// STARTING worker. queued is set until then.
	since  time.Time
	queued bool
	// host is the host on which the worker of a cell runs; empty if it is not known.
	host string
	// listed is set once an answer has shown the worker as STARTING while its start was
	// queued. From then on reports list it in this state too, so that the control plane
	// knows whether the start has begun. The next heartbeat is soon enough for that.
	listed bool
	// sent is the sequence of the first report with this state, or 0 if no report had it.
	// confirmed is set once the control plane has answered that report or a later one.
	sent      int64
	confirmed bool
	// answered is set if the answer to a request contains this state. Then no report of
	// changes lists the worker. But the agent does not know whether the answer arrived until
	// the control plane answers a report with this state.
	answered bool
}

// floor is the highest epoch that the ledger has seen for a worker name.
type floor struct {
	epoch int64
	// ended is set if the worker of that epoch has ended or was stopped before it started.
	ended bool
}

// ledger decides which requests the agent accepts and what it reports. It does no I/O and
// reads no clock. It has no lock: Agent.mu guards it.
type ledger struct {
	executor string
	// nonce is the nonce of this agent's registrations.
	nonce       string
	incarnation int64
	term        int64
	sequence    int64
	entries     map[identity]*entry
	floors      map[model.Worker]floor
	// volumes has the volumes that the executor has, or has destroyed.
	volumes map[string]volume
	// volumesDue is set if the next heartbeat must have a list of the volumes. listed is the
	// sequence of the last list, and received that of the last list that the leader of
	// executor-state has received. They do not restart with an incarnation.
	volumesDue       bool
	listed, received int64
	// known has the workers with a tombstone that is Acknowledged.
	known map[identity]bool
	// tombstones are in order of age, the oldest first.
	tombstones   []tombstone
	tombstoneAge time.Duration
}

func newLedger(executor, nonce string, tombstoneAge time.Duration) *ledger {
	return &ledger{
		executor: executor, nonce: nonce, tombstoneAge: tombstoneAge,
		entries: map[identity]*entry{}, floors: map[model.Worker]floor{}, volumes: map[string]volume{},
		known: map[identity]bool{},
	}
}

// begin starts an incarnation. The sequence does not restart, so that an answer that has
// not arrived yet has a lower sequence than all later reports.
func (l *ledger) begin(incarnation, term int64) {
	l.incarnation = incarnation
	l.raise(term)
}

// raise raises the lowest accepted term of the assigner.
func (l *ledger) raise(term int64) { l.term = max(l.term, term) }

// permit checks that the sender of a request knows the nonce of the registration. Without
// this check any sender could claim any term. Before the agent is registered, permit
// skips the check, because admit refuses every request as one for another incarnation.
func (l *ledger) permit(nonce string) error {
	if l.incarnation == 0 || l.nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(l.nonce)) == 1 {
		return nil
	}
	return fault.New(fault.Denied, fault.ReasonPermissionDenied,
		"the request does not carry the nonce of the registration of %s", l.executor)
}

// admit checks the incarnation and the term of a request, and raises the term.
func (l *ledger) admit(term, incarnation int64) error {
	if err := l.current(incarnation); err != nil {
		return err
	}
	if term < l.term {
		return fault.New(fault.Conflict, fault.ReasonLowerTerm, "the request has term %d, lower than term %d", term, l.term)
	}
	l.term = term
	return nil
}

// current checks the incarnation of a request.
func (l *ledger) current(incarnation int64) error {
	if incarnation != l.incarnation || incarnation == 0 {
		return fault.New(fault.Conflict, fault.ReasonOtherIncarnation,
			"the request is for incarnation %d of %s, which has incarnation %d", incarnation, l.executor, l.incarnation)
	}
	return nil
}

// submit decides on a start request. If fresh is true, the caller must start the worker
// and then call running or startFailed. Otherwise the entry contains the worker's state.
// If the worker still runs at a lower epoch, submit returns an Unavailable error and the
// entry of that epoch as older. The caller must stop older.
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
	// A worker name without a floor has no entry. Few names have a floor, so this search is
	// rare.
	if known {
		for _, before := range l.entries {
			if before.Worker == id.Worker && !before.state.Terminal() {
				return nil, false, before, fault.New(fault.Unavailable, fault.ReasonUnavailable,
					"%s still runs at epoch %d and is being stopped", id.Worker, before.Epoch)
			}
		}
	}
	l.floors[id.Worker] = floor{epoch: id.Epoch}
	e = &entry{identity: id, uid: uid, state: model.WorkerStarting, since: now, queued: true}
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
	l.entries[id] = &entry{identity: id, uid: uid, state: state, launched: true, since: since}
	if id.Epoch > l.floors[id.Worker].epoch {
		l.floors[id.Worker] = floor{epoch: id.Epoch}
	}
}

// acknowledged records that an answer showed the worker as STARTING.
func (l *ledger) acknowledged(id identity) {
	if e := l.entries[id]; e != nil {
		e.listed = e.listed || e.queued
	}
}

// begun records that the agent began the start of the worker.
func (l *ledger) begun(id identity, now time.Time) {
	if e := l.entries[id]; e != nil {
		e.queued, e.since, e.sent, e.confirmed = false, now, 0, false
	}
}

// launch records that the driver is called to start the worker. From then on the worker may
// run.
func (l *ledger) launch(id identity) {
	if e := l.entries[id]; e != nil {
		e.launched = true
	}
}

// started records that the worker was started. With readiness REPORTED it stays STARTING
// until ready is called; otherwise it is RUNNING. answered must be true if a request waits
// for the start: its answer will contain the state.
func (l *ledger) started(id identity, r model.Readiness, answered bool, now time.Time) {
	if r != model.ReadyReported && l.ready(id, now) {
		l.entries[id].answered = answered
	}
}

// ready records that a STARTING worker is RUNNING, and reports whether the state changed.
func (l *ledger) ready(id identity, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state != model.WorkerStarting {
		return false
	}
	e.become(model.WorkerRunning, now)
	return true
}

// placed records the host on which the worker of a cell runs, and reports whether it is another one.
func (l *ledger) placed(id identity, host string) bool {
	e := l.entries[id]
	if e == nil || e.state.Terminal() || e.host == host {
		return false
	}
	e.host, e.sent, e.confirmed, e.answered = host, 0, false, false
	e.listed = true // while the worker is STARTING too
	return true
}

// startFailed records that the worker could not be started. A later request may start the
// worker again. The floor stays, because it also covers lower epochs.
func (l *ledger) startFailed(id identity) { delete(l.entries, id) }

// stop decides on a stop request. If the entry has not ended, the caller must stop the
// worker. If the entry is nil, the caller must make a tombstone durable and bury it,
// unless hasTombstone returns true.
func (l *ledger) stop(term, incarnation int64, id identity) (*entry, error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, err
	}
	return l.entries[id], nil
}

// isOver reports whether the ledger knows that the worker has ended, or refuses the
// worker because it has seen a higher epoch.
func (l *ledger) isOver(id identity) bool {
	seen := l.floors[id.Worker]
	return id.Epoch < seen.epoch || id.Epoch == seen.epoch && seen.ended
}

// hasTombstone reports whether a tombstone of this epoch or a later one covers the
// worker. A refusal because of a later epoch is not enough: after a restart the agent
// does not know that epoch.
func (l *ledger) hasTombstone(id identity) bool {
	seen := l.floors[id.Worker]
	if seen.ended && id.Epoch <= seen.epoch {
		return true
	}
	return id.Epoch < seen.epoch && slices.ContainsFunc(l.tombstones, func(t tombstone) bool { return t.identity == id })
}

// neverStarted reports whether the tombstone of a worker says that it was never started.
func (l *ledger) neverStarted(id identity) bool {
	return slices.ContainsFunc(l.tombstones, func(t tombstone) bool { return t.identity == id && t.NeverStarted })
}

// evicting records that the worker was signalled to stop, and reports whether the state
// changed.
func (l *ledger) evicting(id identity, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state >= model.WorkerEvicting {
		return false
	}
	e.become(model.WorkerEvicting, now)
	return true
}

// ended records how the worker ended, and buries the worker. It ignores a second end.
func (l *ledger) ended(id identity, exit Exit, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state.Terminal() {
		return false
	}
	e.exitCode, e.signal, e.problem, e.reason = exit.Code, exit.Signal, exit.Problem, exit.reason()
	e.badTask = exit.BadTask
	e.become(exit.state(), now)
	l.bury(tombstone{identity: id, NeverStarted: !e.launched, At: now})
	return true
}

// bury adds a tombstone.
func (l *ledger) bury(t tombstone) {
	switch {
	case t.Volume != "":
		if !l.buryVolume(t.Volume) {
			return
		}
	case t.Acknowledged && !l.known[t.identity]:
		l.known[t.identity] = true
	case l.hasTombstone(t.identity):
		return
	case !l.isOver(t.identity):
		l.floors[t.Worker] = floor{epoch: t.Epoch, ended: true}
	}
	l.tombstones = append(l.tombstones, t)
	l.prune(t.At)
}

// prune drops tombstones that are older than tombstoneAge and not among the newest
// tombstoneCount.
func (l *ledger) prune(now time.Time) {
	for len(l.tombstones) > tombstoneCount && now.Sub(l.tombstones[0].At) > l.tombstoneAge {
		t := l.tombstones[0]
		l.tombstones = l.tombstones[1:]
		if t.Acknowledged {
			delete(l.known, t.identity)
		}
		if t.Volume != "" {
			l.pruneVolume(t.Volume)
		} else if l.floors[t.Worker] == (floor{epoch: t.Epoch, ended: true}) && l.entries[t.identity] == nil {
			delete(l.floors, t.Worker)
		}
	}
}

func (e *entry) become(state model.WorkerState, now time.Time) {
	e.state, e.since = state, now
	e.sent, e.confirmed, e.answered = 0, false, false
}
