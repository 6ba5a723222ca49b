package dispatch

import (
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// submitsDone takes what came of orders to start workers, and decides on all of
// it at once.
func (c *Core) submitsDone(all ...SubmitDone) {
	flights := make([]*flight, 0, len(all))
	for _, d := range all {
		c.about(d.UID)
		key, ok := c.orderKey(d.Executor, d.UID, d.WorkerID)
		if !ok {
			continue
		}
		f := c.flights[flightKey{orderKey: key}]
		if f == nil || f.attempt != d.Attempt {
			// The answer comes late, or again. It may still be the first to tell.
			f = &flight{key: flightKey{orderKey: key}, attempt: d.Attempt, landed: true}
		}
		c.submitted(f, d.Outcome)
		flights = append(flights, f)
	}
	c.submitsDecided(flights...)
}

// Stands says whether a Submit is still to be sent. Whoever carries orders out
// asks when it comes to it, on the goroutine that owns the core, and answers
// NotSent if not: a stop that was decided in the same round, after the Submit,
// is durable by then, and nothing is sent past it.
func (c *Core) Stands(s Submit) bool {
	key, ok := c.orderKey(s.Executor, s.UID, s.Worker.ID)
	o := c.orders[key]
	return ok && o != nil && o.kind == orderSubmit
}

// submitted takes what came of one order to start a worker. What follows is
// drafted, for submitsDecided.
func (c *Core) submitted(f *flight, outcome any) {
	if !f.landed {
		c.land(f)
		if _, unsent := outcome.(NotSent); !unsent {
			c.figures.Attempts++
		}
	}
	c.heard(f, outcome)
	t, at, found := c.find(f.key.orderKey)
	if a, ok := outcome.(Accepted); ok {
		c.accepted(f, t, at, found, a)
	} else if found {
		c.notStarted(f, t, at, outcome)
	}
}

// submitsDecided decides what was drafted. An order that nothing was decided
// about is sent again.
func (c *Core) submitsDecided(flights ...*flight) {
	c.flush()
	for _, f := range flights {
		if o := c.standing(f); o != nil && c.flights[f.key] == nil {
			c.retry(o)
		}
	}
}

func (c *Core) accepted(f *flight, t *task, at slot, found bool, a Accepted) {
	if !found || c.read(t, at).State.Terminal() {
		if !a.State.Terminal() && t != nil {
			c.stray(f.key.ordinal, t.instance(f.key.workerID), model.Zombie)
		}
		return
	}
	if h := c.hosts[f.key.ordinal]; !a.State.Terminal() && (h.record == nil || a.Incarnation < h.record.Incarnation) {
		// The executor has been started again since: only its report, or
		// another answer, tells whether the worker outlived that.
		if o := c.orders[f.key.orderKey]; o != nil {
			o.doubt = true
		}
		return
	}
	w := c.read(t, at)
	if w.State == model.WorkerAssigned {
		w.Attempts = f.attempt
	}
	c.learn(t, at, w, a.Incarnation, a.Sequence, WorkerStatus{State: a.State, ExitCode: a.ExitCode, Signal: a.Signal, Error: a.Error})
}

// maxMessage bounds what is kept of an executor's words, in bytes.
const maxMessage = 512

// clip shortens a message to what is kept of it.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "…"
}

// notStarted counts an attempt that came to nothing. What says more of us than
// of the executor does not count.
func (c *Core) notStarted(f *flight, t *task, at slot, outcome any) {
	w := c.read(t, at)
	reason, message, doubt := fault.ReasonUnavailable, "", false
	switch outcome := outcome.(type) {
	case Refused:
		if refusesLeader(outcome) || outcome.Reason == fault.ReasonOtherIncarnation {
			return
		}
		reason, message = outcome.Reason, string(outcome.Reason)
		if outcome.Message != "" {
			message += ": " + outcome.Message
		}
	case Unknown:
		message, doubt = outcome.Message, true
	default:
		return
	}
	o := c.orders[f.key.orderKey]
	if o == nil || o.kind != orderSubmit || f.attempt != w.Attempts+1 {
		return
	}
	o.doubt = o.doubt || doubt
	w.Attempts++
	w.LastError = clip(message)
	if w.Attempts >= c.maxAttempts(t.uid) {
		// An executor that only ever refused is free. One that may have been
		// reached is not, before it has promised never to start the worker.
		if o.doubt {
			w.State, w.Reason = model.WorkerEvict, fault.ReasonAttemptsExhausted
		} else {
			w.State = model.WorkerFailed
			c.giveUp(t, &w)
		}
	} else {
		o.misses = 0
		c.schedule(o, c.backoff(o.key, int(w.Attempts)))
		d := c.draft(t)
		d.observed = append(d.observed, observed{what: sawRetry, reason: reason})
	}
	c.write(t, at, w)
}

// maxAttempts is how often an executor is asked to start a worker, in total.
func (c *Core) maxAttempts(uid string) int32 {
	if r := c.reservations[uid]; r.Reservation != nil && r.Spec.MaxAttempts > 0 {
		return r.Spec.MaxAttempts
	}
	return model.DefaultAttempts
}

func (c *Core) orderKey(executor, uid string, workerID model.WorkerID) (orderKey, bool) {
	ordinal, ok := c.ordinals[executor]
	return orderKey{ordinal, uid, workerID}, ok
}

// find looks up the worker that an executor was told of. The task is answered
// also where the worker is none of that executor's.
func (c *Core) find(key orderKey) (*task, slot, bool) {
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
