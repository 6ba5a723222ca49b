package dispatch

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// An executor is silent if its agent is present and answers no start request. Executor-state
// decides that, because it knows how long an executor of a pool may be absent, and because it
// does not believe that many executors are silent at once. It marks the executor's record
// (model.Executor.Silent). The assigner then gives up the workers that the executor never
// acknowledged, and those whose stop it does not answer, as if it were LOST for these workers
// alone: they become LOST, and a policy of their reservation may replace them elsewhere. A worker
// that the executor has acknowledged and that need not stop stays: it runs.
//
// The executor may still run or start such a worker. The record
// says so (model.TaskWorker.Unconfirmed): the worker's share of the lease stays used, the stop
// request is repeated, and the finding remains, until the executor confirms the end or is LOST,
// or an operator clears the quarantine. A worker of which every start request was certainly not
// sent has no such doubt and is never Unconfirmed: see neverReached and attemptFailed.

// silent reports whether the executor's record says that it is silent.
func (h *host) silent() bool { return h.record != nil && h.record.Silent }

// recordSilence records that a start request for a worker that its executor never acknowledged, or
// a stop request, got no answer. If the executor is silent, the next review gives the worker up.
func (c *Core) recordSilence(w *model.TaskWorker) {
	if w.UnansweredSince.IsZero() {
		w.UnansweredSince = model.InstantOf(c.now)
	}
	if h := c.hosts[w.Ordinal]; h != nil && h.silent() {
		c.markHost(w.Ordinal)
	}
}

// giveUpUnanswered gives up a worker about which its silent executor answers no request. While it is
// open whether the first start request is sent, giveUpUnanswered does nothing: the outcome marks
// the executor for review again.
func (c *Core) giveUpUnanswered(t *task, at slot) {
	w := c.read(t, at)
	if w.State.Terminal() || w.UnansweredSince.IsZero() {
		return
	}
	if w.State == model.WorkerAssigned {
		w.Reason = fault.ReasonAttemptsExhausted
		if r := c.requests[workerKey{w.Ordinal, t.uid, w.ID}]; r != nil && !r.maybeReached {
			if c.calls[r.callKey()] == nil {
				w.State = model.WorkerFailed
				c.write(t, at, w)
			}
			return
		}
	}
	w.Unconfirmed = true
	c.lose(t, at, w, fault.ReasonExecutorSilent)
}

// answeredLate records an answer about an Unconfirmed worker that does not confirm its end.
func (c *Core) answeredLate(t *task, at slot, w model.TaskWorker) {
	if !w.UnansweredSince.IsZero() {
		w.UnansweredSince = 0
		c.write(t, at, w)
	}
}

// confirm records that an Unconfirmed worker does not run, so that its share is free. If it never
// did, an unused volume of it is free as well.
func (c *Core) confirm(t *task, at slot, w model.TaskWorker, neverStarted bool) {
	w.Unconfirmed, w.UnansweredSince, w.NeverStarted = false, 0, neverStarted && w.Incarnation == 0
	c.write(t, at, w)
}
