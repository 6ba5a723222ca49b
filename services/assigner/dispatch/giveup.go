package dispatch

import (
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// giveUp says what becomes of a worker that no attempt has started and that its
// executor cannot start any more. It is queued again where that was asked for,
// as often as there are attempts; the registry sees the mark and does it. Where
// the workers are to go, or start together, there is nothing to queue for one. A
// worker with the highest number fails: there is no next one to queue it with.
func (c *Core) giveUp(t *task, w *model.TaskWorker) {
	if w.Reason != fault.ReasonExecutorRefuses {
		w.Reason = fault.ReasonAttemptsExhausted
	}
	r := c.reservations[t.uid]
	switch {
	case r.ends(), t.header.Stopping, t.unwanted.Has(w.ID):
	case r.Spec.OnFailure == model.OnFailureNotify, r.Spec.Start == model.StartTogether:
	case w.ID.Number >= model.MaxNumber:
	case r.Round+1 < c.maxAttempts(t.uid):
		w.Requeue = true
	default:
		w.Reason = fault.ReasonRoundsExhausted
	}
}

// gaveUp reports whether a worker that has not ended was given up: it ends once its
// executor cannot start it any more.
func gaveUp(w *model.TaskWorker) bool {
	return w.Reason == fault.ReasonAttemptsExhausted || w.Reason == fault.ReasonExecutorRefuses
}

// breaks says whether a worker that comes from one state to the next will not
// run, or not go on to, without having been cancelled: then a batch that is to
// start together cannot.
func breaks(was model.WorkerState, next *model.TaskWorker) bool {
	switch {
	case was >= model.WorkerEvict:
		return false
	case next.State == model.WorkerLost:
		return true
	case next.State == model.WorkerFailed:
		return next.Reason != fault.ReasonExited && next.Reason != fault.ReasonKilled
	case next.State == model.WorkerEvict, next.State == model.WorkerEvicted:
		return next.Reason != fault.ReasonCancelled
	}
	return false
}

// withdraw stops all workers of a batch that cannot start together. What has
// failed is told to whoever asked, and the registry queues the batch again once
// nothing of it is left.
func (c *Core) withdraw(d *draft) {
	d.stopping, d.withdrawn = true, true
	d.observed = append(d.observed, observed{what: sawWithdrawn})
	d.message = c.reasons(d)
	c.dismissAll(d.t, fault.ReasonNotTogether)
}

// maxReasons bounds the different reasons that a message gives.
const maxReasons = 3

// reasons tells why workers of a task could not be started, each reason once:
// first of those that broke the batch, then of others that were in trouble.
func (c *Core) reasons(d *draft) string {
	var parts []string
	seen := map[string]bool{}
	add := func(w model.TaskWorker, reason fault.Reason) {
		why := w.LastError
		switch {
		case why == "":
			why = string(reason)
		case reason != "":
			why = string(reason) + ": " + why
		}
		if why == "" || seen[why] || len(parts) == maxReasons {
			return
		}
		seen[why] = true
		parts = append(parts, w.ID.String()+" on "+c.executorID(w.Ordinal)+": "+why)
	}
	for _, at := range d.broken {
		w := c.read(d.t, at)
		add(w, w.Reason)
		seen[w.LastError] = true
	}
	for _, chunk := range d.t.chunks {
		for i := range size(chunk) {
			add(chunk.Workers[i], "")
		}
	}
	return strings.Join(parts, "; ")
}
