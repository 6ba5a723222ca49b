package agent

import (
	"fmt"
	"strings"
	"time"

	"berth.dev/pkg/model"
)

// retryEndsAfter is the time between attempts to make an end durable.
const retryEndsAfter = time.Second

// maxProblem is the maximum length of Exit.Problem in a report, in bytes.
const maxProblem = 4 << 10

// clip shortens a text to a number of bytes, in whole characters.
func clip(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD")
}

// ended processes the end of a worker.
func (a *Agent) ended(id identity, x Exit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conclude(id, x)
}

// conclude makes the end of a worker durable and then reports it, because a reported end
// is a promise. If the end cannot be made durable, it stays pending: the agent reports
// the worker's last state and retries. a.mu must be locked.
func (a *Agent) conclude(id identity, x Exit) {
	e := a.ledger.entries[id]
	if a.closed || e == nil || e.state.Terminal() {
		return
	}
	if w := a.workers[id]; w != nil && w.start != nil {
		// A worker that the control plane also requested to stop is EVICTING, and will be EVICTED.
		if x.Late = w.start.late && x.Stopped && e.state == model.WorkerStarting; x.Late {
			x.Problem = fmt.Sprintf("not RUNNING within %v", w.start.spec.StartLimit)
		}
		a.finish(w.start)
	}
	now := a.cfg.now()
	t := tombstone{identity: id, NeverStarted: !e.launched, At: now}
	if err := a.journal.append(t, a.ledger.tombstones); err != nil {
		if len(a.pendingEnds) == 0 {
			a.log.Error("ends of workers are not durable and stay pending", "error", err)
			a.retryEnds = time.AfterFunc(retryEndsAfter, a.concludePending)
		}
		a.pendingEnds[id] = x
		return
	}
	x.Problem = clip(x.Problem, maxProblem)
	a.ledger.ended(id, x, now)
	a.leaveGang(id)
	a.counts.ended[x.state()]++
	a.log.Info("worker ended", "worker", id.Worker, "epoch", id.Epoch, "state", x.state(), "problem", x.Problem)
	a.notify()
}

// concludePending retries the pending ends.
func (a *Agent) concludePending() {
	a.mu.Lock()
	defer a.mu.Unlock()
	pending := a.pendingEnds
	a.pendingEnds = map[identity]Exit{}
	for id, x := range pending {
		a.conclude(id, x)
	}
	if len(a.pendingEnds) == 0 && !a.closed {
		a.log.Info("ends of workers are durable again", "ends", len(pending))
	}
}

// keepAcknowledged makes it durable that the control plane has acknowledged the ends of
// workers of a cell, so that the next agent does not report them again: the driver of a cell
// keeps nothing that it could remove. If the disk is full, they are reported again. a.mu must be
// locked.
func (a *Agent) keepAcknowledged(ids []identity) {
	if a.cfg.Cell == nil || a.journal == nil || a.closed || len(ids) == 0 {
		return
	}
	var added []tombstone
	for _, id := range ids {
		added = append(added, tombstone{identity: id, Acknowledged: true, At: a.cfg.now()})
	}
	// They must not use the disk space that is reserved for the ends of running workers.
	err := a.journal.reserve(a.ledger.live()+len(added), a.ledger.tombstones)
	if err == nil {
		err = a.journal.appendAll(added, a.ledger.tombstones)
	}
	if err != nil {
		a.log.Warn("acknowledged ends are not durable", "ends", len(added), "error", err)
		return
	}
	for _, t := range added {
		a.ledger.bury(t)
	}
}
