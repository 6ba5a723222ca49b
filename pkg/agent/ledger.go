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

// tombstone says that a worker does not run and is never started: at this epoch
// or a lower one.
type tombstone struct {
	identity
	At time.Time
}

const (
	// tombstoneCount is how many tombstones are kept whatever their age.
	tombstoneCount = 1024
	// defaultTombstoneAge is how long all of them are, unless it is given.
	defaultTombstoneAge = 24 * time.Hour
)

// entry is a worker that is reported: it lives, or its end is not yet durable
// at the control plane.
type entry struct {
	identity
	uid      string
	state    model.WorkerState
	exitCode *int32
	signal   int32
	problem  string
	since    time.Time
	// sent is the sequence of the report that first told this state, 0 when none
	// did; told is set once it was answered, or one after it.
	sent int64
	told bool
	// shown: the answer to an order shows this state. It is no news then, but
	// until a report has told it nobody knows whether the answer came through.
	shown bool
}

// floor is the highest epoch seen of a worker's name.
type floor struct {
	epoch int64
	// ended: a worker of that epoch is over, or was stopped before it began.
	ended bool
}

// ledger decides which orders are taken, and knows what is to be reported. It
// does no I/O, reads no clock and has no lock: its Agent guards it.
type ledger struct {
	executor string
	// nonce is that of the registrations of this agent.
	nonce       string
	incarnation int64
	term        int64
	sequence    int64
	entries     map[identity]*entry
	// lives counts the entries that have not ended, by name; living, all of them.
	lives  map[model.Worker]int
	living int
	floors map[model.Worker]floor
	// buried holds the tombstones, oldest first.
	buried       []tombstone
	tombstoneAge time.Duration
}

func newLedger(executor string, tombstoneAge time.Duration) *ledger {
	return &ledger{
		executor: executor, tombstoneAge: tombstoneAge,
		entries: map[identity]*entry{}, lives: map[model.Worker]int{}, floors: map[model.Worker]floor{},
	}
}

// begin starts an incarnation. The sequence goes on: an answer that was on its
// way meanwhile still sorts before the reports to come.
func (l *ledger) begin(incarnation, term int64) {
	l.incarnation = incarnation
	l.raise(term)
}

// raise lifts the floor of the assigner's term.
func (l *ledger) raise(term int64) { l.term = max(l.term, term) }

// permit checks that an order comes from somebody who knows the registration of the
// executor: everybody else may say what they want of terms. An agent that has yet to
// register takes no order at all, and refuses those of its registration before as it
// refuses those of another incarnation.
func (l *ledger) permit(nonce string) error {
	if l.incarnation == 0 || l.nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(l.nonce)) == 1 {
		return nil
	}
	return fault.New(fault.Denied, fault.ReasonPermissionDenied, "the request does not carry the nonce of the registration of %s", l.executor)
}

// admit checks what every order carries, and raises the term to the order's.
func (l *ledger) admit(term, incarnation int64) error {
	if incarnation != l.incarnation || incarnation == 0 {
		return fault.New(fault.Conflict, fault.ReasonOtherIncarnation,
			"the order is for incarnation %d of %s, which is at %d", incarnation, l.executor, l.incarnation)
	}
	if term < l.term {
		return fault.New(fault.Conflict, fault.ReasonLowerTerm, "the order is of term %d, and term %d was seen", term, l.term)
	}
	l.term = term
	return nil
}

// submit decides on an order to start. With fresh the caller is to start the
// worker, and to say running or startFailed then. Otherwise the entry shows how
// it stands. A live worker of a lower epoch has to go first: then the error is
// Unavailable, and older names it.
func (l *ledger) submit(term, incarnation int64, id identity, uid string, now time.Time) (e *entry, fresh bool, older *entry, err error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, false, nil, err
	}
	seen, known := l.floors[id.Worker]
	if known && id.Epoch < seen.epoch {
		return nil, false, nil, fault.New(fault.Conflict, fault.ReasonLowerEpoch,
			"epoch %d of %s is over: epoch %d was seen", id.Epoch, id.Worker, seen.epoch)
	}
	if e := l.entries[id]; e != nil && e.state != model.WorkerEvicted {
		return e, false, nil, nil
	}
	if known && id.Epoch == seen.epoch && seen.ended {
		return nil, false, nil, fault.New(fault.Conflict, fault.ReasonStopped,
			"%s of epoch %d was stopped or is over: it is never started again", id.Worker, id.Epoch)
	}
	if before := l.liveOne(id.Worker); before != nil {
		return nil, false, before, fault.New(fault.Unavailable, fault.ReasonUnavailable,
			"%s still runs at epoch %d and is being stopped", id.Worker, before.Epoch)
	}
	l.floors[id.Worker] = floor{epoch: id.Epoch}
	e = &entry{identity: id, uid: uid, state: model.WorkerStarting, since: now}
	l.enter(e)
	return e, true, nil, nil
}

// enter, leave and die are the only ones to change the counts of who lives.
func (l *ledger) enter(e *entry) {
	l.leave(e.identity)
	l.entries[e.identity] = e
	if !e.state.Terminal() {
		l.lives[e.Worker]++
		l.living++
	}
}

func (l *ledger) leave(id identity) {
	if e := l.entries[id]; e != nil && !e.state.Terminal() {
		l.die(e)
	}
	delete(l.entries, id)
}

func (l *ledger) die(e *entry) {
	l.living--
	if l.lives[e.Worker]--; l.lives[e.Worker] == 0 {
		delete(l.lives, e.Worker)
	}
}

// liveOne finds the live worker of a name, at whatever epoch. Few orders are for
// a name that has one, so that looking at all workers is cheap then.
func (l *ledger) liveOne(name model.Worker) *entry {
	if l.lives[name] == 0 {
		return nil
	}
	for _, e := range l.entries {
		if e.Worker == name && !e.state.Terminal() {
			return e
		}
	}
	return nil
}

// adopt takes over a worker that an earlier agent started.
func (l *ledger) adopt(id identity, uid string, state model.WorkerState, since time.Time) {
	l.enter(&entry{identity: id, uid: uid, state: state, since: since})
	if id.Epoch > l.floors[id.Worker].epoch {
		l.floors[id.Worker] = floor{epoch: id.Epoch}
	}
}

// running says that the worker was started, and whether the order to start it is
// about to be answered so.
func (l *ledger) running(id identity, shown bool, now time.Time) {
	if e := l.entries[id]; e != nil && e.state == model.WorkerStarting {
		e.become(model.WorkerRunning, now)
		e.shown = shown
	}
}

// startFailed says that the worker could not be started: it may be ordered
// again. The floor stays, since it also stands for lower epochs.
func (l *ledger) startFailed(id identity) { l.leave(id) }

// stop decides on an order to stop. An entry without end is to be stopped by the
// caller; without an entry the caller is to make a tombstone durable, unless the
// worker is gone, and to bury it.
func (l *ledger) stop(term, incarnation int64, id identity) (*entry, error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, err
	}
	return l.entries[id], nil
}

// gone says whether the worker is known to be over, or refused for its epoch.
func (l *ledger) gone(id identity) bool {
	seen := l.floors[id.Worker]
	return id.Epoch < seen.epoch || id.Epoch == seen.epoch && seen.ended
}

// buriedFor says whether a tombstone stands for the worker, its own or one of a later
// epoch. What is only refused for a later epoch that was seen is not promised: an
// agent that starts again knows nothing of that.
func (l *ledger) buriedFor(id identity) bool {
	seen := l.floors[id.Worker]
	if seen.ended && id.Epoch <= seen.epoch {
		return true
	}
	return id.Epoch < seen.epoch && slices.ContainsFunc(l.buried, func(t tombstone) bool { return t.identity == id })
}

// evicting says that the worker was told to end, and whether that is news.
func (l *ledger) evicting(id identity, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state >= model.WorkerEvicting {
		return false
	}
	e.become(model.WorkerEvicting, now)
	return true
}

// ended says how the worker ended, and buries it. A second end is ignored.
func (l *ledger) ended(id identity, exit Exit, now time.Time) bool {
	e := l.entries[id]
	if e == nil || e.state.Terminal() {
		return false
	}
	e.exitCode, e.signal, e.problem = exit.Code, exit.Signal, exit.Problem
	l.die(e)
	e.become(exit.state(), now)
	l.bury(tombstone{id, now})
	return true
}

// bury remembers that a worker is over.
func (l *ledger) bury(t tombstone) {
	if l.buriedFor(t.identity) {
		return
	}
	if !l.gone(t.identity) {
		l.floors[t.Worker] = floor{epoch: t.Epoch, ended: true}
	}
	l.buried = append(l.buried, t)
	l.prune(t.At)
}

// prune drops tombstones that are both old and many.
func (l *ledger) prune(now time.Time) {
	for len(l.buried) > tombstoneCount && now.Sub(l.buried[0].At) > l.tombstoneAge {
		t := l.buried[0]
		l.buried = l.buried[1:]
		if l.floors[t.Worker] == (floor{epoch: t.Epoch, ended: true}) && l.entries[t.identity] == nil {
			delete(l.floors, t.Worker)
		}
	}
}

func (e *entry) become(state model.WorkerState, now time.Time) {
	e.state, e.since = state, now
	e.sent, e.told, e.shown = 0, false, false
}
