package dispatch

import (
	"cmp"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// giveUpUnstarted gives up a worker that its executor has not started, because the executor
// refuses this service. The refusal does not count as an attempt. While a call is in
// flight, giveUpUnstarted does nothing, because the executor may accept that call.
func (c *Core) giveUpUnstarted(t *task, at slot) {
	w := c.read(t, at)
	r := c.requests[workerKey{w.Ordinal, t.uid, w.ID}]
	if w.State != model.WorkerAssigned || r != nil && c.calls[r.callKey()] != nil {
		return
	}
	m := c.refusals[c.executorID(w.Ordinal)]
	w.LastError = model.Intern(clip(string(m.Reason) + ": " + m.Message))
	w.State, w.Reason = model.WorkerFailed, fault.ReasonExecutorRefuses
	if r == nil || r.maybeReached {
		w.State = model.WorkerEvict
	}
	c.write(t, at, w)
}

// breaksGang reports whether a new state of a worker means that its gang cannot start
// together: the worker cannot start, is lost or must stop, and was not cancelled or over its
// lifetime. A worker that ran and ended by itself does not break its gang, unless a policy
// names that end (wantsRequeue).
func breaksGang(was model.WorkerState, next *model.TaskWorker) bool {
	switch {
	case was >= model.WorkerEvict:
		return false
	case next.State == model.WorkerLost:
		return true
	case next.State == model.WorkerFailed:
		return next.Reason != fault.ReasonExited && next.Reason != fault.ReasonKilled
	case next.State == model.WorkerEvict, next.State == model.WorkerEvicted:
		return next.Reason != fault.ReasonCancelled && next.Reason != fault.ReasonLifetime
	}
	return false
}

// withdraw stops all workers of a gang that cannot start together or that restarts. The task's
// header says why. When all workers of the gang have ended, the registry queues the gang again.
func (c *Core) withdraw(d *draft, reason fault.Reason, message string) {
	d.stopping, d.withdrawn = true, true
	d.count(func(m *Metrics) { m.Withdrawn++ })
	d.reason, d.message = reason, message
	c.stopAll(d.t, reason)
}

// withdrawWith withdraws a task because its gang restarts with another task. A task of the gang that
// is dispatched later is withdrawn too, so no two rounds of the gang run side by side.
func (c *Core) withdrawWith(t, cause *task) {
	c.withdraw(c.draft(t), fault.ReasonGangRestarted, cause.header.Message)
	c.flush()
}

// maxReasons is the maximum number of different reasons in a message.
const maxReasons = 3

// withdrawalMessage returns why workers of a task ended or could not be started, with each reason
// once. The reasons of the workers that broke the gang come first, in the order of time and
// then of index, then the last errors of the other workers.
func (c *Core) withdrawalMessage(d *draft, slots []slot) string {
	var parts []string
	seen := map[string]bool{"": true}
	add := func(w model.TaskWorker, why string) {
		if seen[why] || len(parts) == maxReasons {
			return
		}
		seen[why] = true
		parts = append(parts, w.ID.String()+" on "+c.executorID(w.Ordinal)+": "+why)
	}
	var broken []model.TaskWorker
	for _, at := range slots {
		broken = append(broken, c.read(d.t, at))
	}
	slices.SortFunc(broken, model.InTime)
	for _, w := range broken {
		why := cmp.Or(string(w.Reason), w.State.String())
		if !w.LastError.IsEmpty() {
			why += ": " + w.LastError.String()
		}
		add(w, why)
		seen[w.LastError.String()] = true
	}
	for _, chunk := range d.t.chunks {
		for i := range size(chunk) {
			add(chunk.Workers[i], chunk.Workers[i].LastError.String())
		}
	}
	return strings.Join(parts, "; ")
}
