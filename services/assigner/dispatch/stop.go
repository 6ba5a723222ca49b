package dispatch

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// stop decides the stop of a worker. If no start request can have reached the executor, the
// worker has ended. Otherwise the executor must confirm the end.
func (c *Core) stop(t *task, at slot, reason fault.Reason) {
	w := c.read(t, at)
	if w.State >= model.WorkerEvict {
		return
	}
	w.State, w.Reason = model.WorkerEvict, reason
	r := c.requests[workerKey{w.Ordinal, t.uid, w.ID}]
	if r != nil && r.kind == startRequest && !r.maybeReached && c.calls[r.callKey()] == nil {
		w.State = model.WorkerEvicted
	}
	c.write(t, at, w)
}

// stopAll decides the stop of every worker of a task.
func (c *Core) stopAll(t *task, reason fault.Reason) {
	for n, chunk := range t.chunks {
		for i := range size(chunk) {
			c.stop(t, slot{int32(n), i}, reason)
		}
	}
}

func (c *Core) stopDone(d StopDone) {
	worker, ok := c.workerKey(d.Executor, d.UID, d.Worker.ID)
	if !ok {
		return
	}
	key := callKey{worker, instance{d.UID, d.Worker, d.Epoch}}
	f := c.calls[key]
	if f == nil || f.number != d.Call {
		f = &call{key: key, ended: true}
	}
	c.stopEnded(f, d.Result)
}

// stopEnded handles the outcome of one stop request. The number of attempts is not
// limited: the core repeats the stop until the end is confirmed or the executor is lost.
// The outcome is about the stopped instance, which need not be the recorded worker.
func (c *Core) stopEnded(f *call, result any) {
	if !f.ended {
		c.endCall(f)
	}
	c.trackRefusal(f, result)
	t, at, found := c.find(f.key.workerKey)
	found = found && t.instance(f.key.workerID) == f.key.stop
	if found {
		w := c.read(t, at)
		found = w.Occupies()
	}
	acknowledged := false
	switch result := result.(type) {
	case Ended:
		c.endInstance(f.key.ordinal, f.key.stop)
		if found && result.State.Terminal() {
			w := c.read(t, at)
			incarnation := w.Incarnation
			if h := c.hosts[w.Ordinal]; h.record != nil {
				incarnation = h.record.Incarnation
			}
			c.recordUse(t, &w, incarnation, result.NeverStarted)
			c.recordEnd(t, at, w, Status(result))
		}
	case Stopping:
		acknowledged = true
		if found {
			c.recordStopping(t, at)
		}
	case Unknown:
		if w := c.readIf(found, t, at); !w.State.Terminal() && w.State >= model.WorkerEvict && w.UnansweredSince.IsZero() {
			c.recordSilence(&w)
			c.write(t, at, w)
		}
	case Refused, Inconclusive:
		if w := c.readIf(found, t, at); !w.UnansweredSince.IsZero() {
			w.UnansweredSince = 0
			c.write(t, at, w)
		}
	}
	c.flush()
	switch r := c.unqueued(f); {
	case r == nil || c.calls[f.key] != nil:
	case acknowledged:
		r.failures = 0
		c.schedule(r, c.pauseAfterStop(r))
	default:
		c.retry(r)
	}
}

// pauseAfterStop returns the pause before an acknowledged stop is sent again: none if the
// worker got less time to end while the request was in flight. A stop that only an earlier leader
// sent is not in flight.
func (c *Core) pauseAfterStop(r *request) time.Duration {
	if r.sent > 0 && c.grace(r.key) < r.grace {
		return 0
	}
	return c.repeatStopAfter(r.key)
}

// recordStopping records that the executor has acknowledged the stop of a worker.
func (c *Core) recordStopping(t *task, at slot) {
	switch w := c.read(t, at); {
	case w.Unconfirmed:
		c.answeredLate(t, at, w)
	case w.State == model.WorkerEvict:
		w.State, w.UnansweredSince = model.WorkerEvicting, 0
		c.write(t, at, w)
	}
}

// readIf returns a worker if it was found, and otherwise the zero worker.
func (c *Core) readIf(found bool, t *task, at slot) model.TaskWorker {
	if !found {
		return model.TaskWorker{}
	}
	return c.read(t, at)
}

// recordUse records whether an ended worker on a volume may have used it, because
// executor-state destroys a new volume that no worker has used. If the worker may have, its
// record has the incarnation of the executor that had it, even if the first answer about the
// worker is its end. If the executor certainly never started it, the record has none. But an
// acknowledgement in an earlier incarnation counts more: the agent may have lost its memory
// since.
func (c *Core) recordUse(t *task, w *model.TaskWorker, incarnation int64, never bool) {
	switch {
	case c.spec(t.uid).Volume == nil:
	case never && (w.Incarnation == 0 || w.Incarnation == incarnation):
		w.Incarnation, w.Sequence = 0, 0
	case w.Incarnation == 0:
		w.Incarnation = incarnation
	}
}

// recordEnd records the end of a worker as its executor reports it.
func (c *Core) recordEnd(t *task, at slot, w model.TaskWorker, end Status) {
	if w.Unconfirmed {
		c.confirm(t, at, w, end.NeverStarted)
		return
	}
	was := w.State
	w.State, w.ExitCode, w.UnansweredSince = end.State, end.ExitCode, 0
	if end.Error != "" {
		w.LastError, w.BadTask = model.Intern(clip(end.Error)), end.BadTask
	}
	neverRan := end.State == model.WorkerEvicted ||
		end.State == model.WorkerFailed && (end.ExitCode == nil || end.Reason == fault.ReasonStartTimeout)
	if w.GaveUp() && neverRan {
		w.State = model.WorkerFailed
	} else {
		w.Reason = endReason(w.Reason, was, t.header.Withdrawn, end)
	}
	// The first failure in time is the cause that messages name, and reports may arrive in another order.
	ended := c.now.Add(-max(0, end.EndedFor)) // the clock of the executor may have been changed
	if since := w.Since.Time(); ended.Before(since) {
		ended = since
	}
	c.writeSince(t, at, w, ended)
}

// endReason returns the reason of a worker that has ended. An EVICTED worker whose stop was
// decided keeps its reason. So does a worker of a withdrawn gang that fails before its stop request
// arrives: often it fails because of the worker that broke the gang. A worker whose executor is drained
// keeps its reason if nobody observed its end. Any other end replaces the reason.
func endReason(reason fault.Reason, was model.WorkerState, withdrawn bool, end Status) fault.Reason {
	switch {
	case end.State == model.WorkerCompleted:
		return ""
	case end.State == model.WorkerEvicted && was < model.WorkerEvict:
		return fault.ReasonStopped // by the executor, without a request
	case end.State == model.WorkerEvicted:
		return reason
	case reason == fault.ReasonGangRestarted && end.Reason == fault.ReasonCellWorkerLost: // its host was lost
		return end.Reason
	case was >= model.WorkerEvict && (reason == fault.ReasonNotTogether || reason == fault.ReasonGangRestarted ||
		reason == fault.ReasonExecutorDraining && (withdrawn || end.ExitCode == nil)):
		return reason
	case end.Reason != "":
		return end.Reason
	}
	switch {
	case end.Signal != 0:
		return fault.ReasonKilled
	case end.ExitCode != nil:
		return fault.ReasonExited
	case was <= model.WorkerStarting:
		return fault.ReasonStartFailed
	}
	return fault.ReasonKilled
}
