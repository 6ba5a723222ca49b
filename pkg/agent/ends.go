package agent

import (
	"strings"
	"time"
)

// heldAgain is how often an end that could not be made durable is tried again.
const heldAgain = time.Second

// maxProblem bounds what is reported of a worker's problem, in bytes.
const maxProblem = 4 << 10

// clip shortens a text to what is reported of it, in whole characters.
func clip(problem string) string {
	if len(problem) > maxProblem {
		problem = problem[:maxProblem]
	}
	return strings.ToValidUTF8(problem, "\uFFFD")
}

// ended takes in the end of a worker: durable first, then told.
func (a *Agent) ended(id identity, x Exit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conclude(id, x)
}

// conclude makes an end durable and has it told. An end that is told is a
// promise: one that cannot be made durable is held back, the worker is told of
// as it was, and the end is tried again until it is. The lock is held.
func (a *Agent) conclude(id identity, x Exit) {
	e := a.ledger.entries[id]
	if a.closed || e == nil || e.state.Terminal() {
		return
	}
	now := a.now()
	if err := a.journal.append(tombstone{id, now}, a.ledger.buried); err != nil {
		if len(a.held) == 0 {
			a.log.Error("ends of workers are not durable, and held back until they are", "error", err)
			a.again = time.AfterFunc(heldAgain, a.concludeHeld)
		}
		a.held[id] = x
		return
	}
	x.Problem = clip(x.Problem)
	a.ledger.ended(id, x, now)
	a.log.Info("worker ended", "worker", id.Worker, "epoch", id.Epoch, "state", x.state(), "problem", x.Problem)
	a.tell()
}

// concludeHeld tries the ends that were held back.
func (a *Agent) concludeHeld() {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held
	a.held = map[identity]Exit{}
	for id, x := range held {
		a.conclude(id, x)
	}
	if len(held) > 0 && len(a.held) == 0 && !a.closed {
		a.log.Info("ends of workers are durable again", "ends", len(held))
	}
}
