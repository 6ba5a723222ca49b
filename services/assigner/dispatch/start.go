package dispatch

import (
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// submitsDone handles the outcomes of start requests. The changes of one task become one
// effect.
func (c *Core) submitsDone(all ...SubmitDone) {
	calls := make([]*call, 0, len(all))
	for _, d := range all {
		c.setSubject(d.UID)
		worker, ok := c.workerKey(d.Executor, d.UID, d.WorkerID)
		if !ok {
			continue
		}
		key := callKey{workerKey: worker}
		f := c.calls[key]
		if f == nil || f.attempt != d.Attempt || f.number != d.Call {
			// The answer is late or repeated. It may still be the first answer that
			// shows the worker's state.
			f = &call{key: key, attempt: d.Attempt, ended: true}
		}
		c.submitEnded(f, d.Outcome)
		calls = append(calls, f)
	}
	c.retryUndecided(calls...)
}

// Wanted reports whether the shell should still send a Submit. The shell must call Wanted
// immediately before it sends the Submit, on the goroutine that owns the core. If Wanted
// returns false, the shell must answer NotSent. A stop that was decided after the Submit
// in the same round is durable by then, so no start request is sent after a durable stop.
// A Submit is not wanted either if its volume has changed since: it must not create a volume
// that has been used.
func (c *Core) Wanted(s Submit) bool {
	key, ok := c.workerKey(s.Executor, s.UID, s.Worker.ID)
	r := c.requests[key]
	if !ok || r == nil || r.kind != startRequest {
		return false
	}
	if s.Volume == nil {
		return true
	}
	volume, found := c.volumeFor(r)
	return found && volume != nil && *volume == *s.Volume
}

// submitEnded drafts the changes that follow from the outcome of one start request.
func (c *Core) submitEnded(f *call, outcome any) {
	live := !f.ended
	if live {
		c.endCall(f)
		if _, unsent := outcome.(NotSent); !unsent {
			c.metrics.Attempts++
		}
	}
	c.trackRefusal(f, outcome)
	t, at, found := c.find(f.key.workerKey)
	switch a, ok := outcome.(Accepted); {
	case ok:
		c.accepted(f, t, at, found, a)
	case found && live && f.first && c.neverReached(t, at, outcome):
	case found:
		c.attemptFailed(f, t, at, outcome)
	}
}

// neverReached ends a worker whose stop was decided while its first start request was in flight,
// if that request was not sent: the executor cannot have received any.
func (c *Core) neverReached(t *task, at slot, outcome any) bool {
	switch outcome.(type) {
	case NotSent, Undelivered:
	default:
		return false
	}
	w := c.read(t, at)
	switch {
	case w.Unconfirmed:
		c.confirm(t, at, w, true)
	case w.State == model.WorkerEvict && w.GaveUp():
		w.State = model.WorkerFailed
		c.write(t, at, w)
	case w.State == model.WorkerEvict:
		w.State = model.WorkerEvicted
		c.write(t, at, w)
	default:
		return false
	}
	return true
}

// retryUndecided decides the drafts. If no decision has rescheduled or ended the request of
// a call, it retries that request.
func (c *Core) retryUndecided(calls ...*call) {
	c.flush()
	for _, f := range calls {
		if r := c.unqueued(f); r != nil && c.calls[f.key] == nil {
			c.retry(r)
		}
	}
}

// accepted handles a worker that its executor has accepted. If the record has ended without
// the executor's confirmation, a live worker is an orphan. If the executor has confirmed the
// end, the answer is older than the end, and there is no worker to stop.
func (c *Core) accepted(f *call, t *task, at slot, found bool, a Accepted) {
	if !found || c.read(t, at).State.Terminal() {
		if found && c.read(t, at).Unconfirmed {
			c.answeredLate(t, at, c.read(t, at))
		} else if !a.State.Terminal() && t != nil && !f.workerEnded {
			c.stopOrphan(f.key.ordinal, t.instance(f.key.workerID), model.Zombie)
		}
		return
	}
	if h := c.hosts[f.key.ordinal]; !a.State.Terminal() && (h.record == nil || a.Incarnation < h.record.Incarnation) {
		// The agent has registered again since. Only its next report, or another
		// answer, shows whether the worker survived.
		if r := c.requests[f.key.workerKey]; r != nil {
			r.maybeReached = true
		}
		return
	}
	w := c.read(t, at)
	if w.State == model.WorkerAssigned {
		w.Attempts = f.attempt
	}
	c.update(t, at, w, a.Incarnation, a.Sequence, a.Status)
}

// maxMessage is the maximum length of an executor's message in a record, in bytes.
const maxMessage = 512

// clip shortens a message to maxMessage.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "…"
}

// attemptFailed counts a failed attempt. A refusal of the assigner's leader, or a refusal
// because the executor has registered again, does not count. VOLUME_IN_USE does not count
// either: the worker that had the volume before is exiting, and the index has no other place.
func (c *Core) attemptFailed(f *call, t *task, at slot, outcome any) {
	var reason fault.Reason
	var message string
	badTask, reached, silent := false, false, false
	switch outcome := outcome.(type) {
	case Refused:
		if refusesLeader(outcome) || outcome.Reason == fault.ReasonOtherIncarnation {
			return
		}
		reason, message, badTask = outcome.Reason, string(outcome.Reason), outcome.BadTask
		if outcome.Message != "" {
			message += ": " + outcome.Message
		}
	case Inconclusive:
		reason, message, reached = fault.ReasonUnavailable, outcome.Message, true
	case Unknown:
		reason, message, reached, silent = fault.ReasonUnavailable, outcome.Message, true, true
	case Undelivered:
		reason, message, silent = fault.ReasonUnavailable, outcome.Message, true
	default:
		return
	}
	w, r := c.read(t, at), c.requests[f.key.workerKey]
	if r == nil || r.kind != startRequest || f.attempt != w.Attempts+1 {
		return
	}
	r.maybeReached = r.maybeReached || reached
	before := w
	w.LastError, w.BadTask = model.Intern(clip(message)), badTask
	if silent {
		c.recordSilence(&w)
	} else {
		w.UnansweredSince = 0
	}
	knows := reason == fault.ReasonStopped || reason == fault.ReasonLowerEpoch
	if h := c.hosts[f.key.ordinal]; knows && h.record != nil {
		c.recordUse(t, &w, h.record.Incarnation, false) // the worker may have run
	}
	if reason == fault.ReasonVolumeInUse {
		c.draft(t).count(func(m *Metrics) { countReason(m.Retries, reason) })
		if w != before {
			c.write(t, at, w)
		}
		return
	}
	w.Attempts++
	switch {
	case w.Attempts < c.maxAttempts(t.uid):
		r.failures = 0
		c.schedule(r, c.backoff(r.key, int(w.Attempts)))
		c.draft(t).count(func(m *Metrics) { countReason(m.Retries, reason) })
	case r.maybeReached || c.calls[r.callKey()] != nil:
		// The executor's capacity is free only once it promises not to start the worker.
		w.State, w.Reason = model.WorkerEvict, fault.ReasonAttemptsExhausted
	default:
		w.State, w.Reason = model.WorkerFailed, fault.ReasonAttemptsExhausted
	}
	c.write(t, at, w)
}

// maxAttempts returns the maximum number of start requests for a worker.
func (c *Core) maxAttempts(uid string) int32 {
	if r := c.reservations[uid]; r.Reservation != nil && r.Spec.MaxAttempts > 0 {
		return r.Spec.MaxAttempts
	}
	return model.DefaultAttempts
}

func (c *Core) workerKey(executor, uid string, workerID model.WorkerID) (workerKey, bool) {
	ordinal, ok := c.ordinals[executor]
	return workerKey{ordinal, uid, workerID}, ok
}

// find returns the task and the place of a worker on an executor. If the worker is placed
// on another executor, find still returns the task, and false.
func (c *Core) find(key workerKey) (*task, slot, bool) {
	t := c.tasks[key.uid]
	if t == nil || !t.active() {
		return nil, slot{}, false
	}
	at, found := t.find(key.workerID)
	if !found || t.chunks[at.chunk].Workers[at.i].Ordinal != key.ordinal {
		return t, slot{}, false
	}
	return t, at, true
}
