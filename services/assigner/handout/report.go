package handout

import (
	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// report takes in what an executor says of its workers.
func (c *Core) report(r Report) (Reported, error) {
	ordinal, ok := c.ordinals[r.Executor]
	if !ok {
		return Reported{}, fault.New(fault.Unavailable, fault.ReasonUnavailable, "executor %s is not known here yet", r.Executor)
	}
	h := c.hosts[ordinal]
	if r.Incarnation < h.record.Incarnation {
		return Reported{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %s has incarnation %d, not %d", r.Executor, h.record.Incarnation, r.Incarnation)
	}
	answer := Reported{Executor: r.Executor, Sequence: r.Sequence}
	listed := make(map[orderKey]bool, len(r.Workers))
	for _, status := range r.Workers {
		if !sayable(status.State) {
			continue
		}
		key := orderKey{ordinal, status.UID, status.Worker.Seat}
		t, at, found := c.find(key)
		known := found && t.header.Epoch == status.Epoch && t.worker(key.seat) == status.Worker
		if live := !status.State.Terminal(); live {
			listed[key] = true
		} else {
			answer.Ended = append(answer.Ended, status)
		}
		switch {
		case known && !c.read(t, at).State.Terminal():
			c.learn(t, at, c.read(t, at), r.Incarnation, r.Sequence, status)
		case found && !known:
			// A uid has one epoch: whatever this is, it is not that worker.
		case !status.State.Terminal():
			c.stray(key, status.Worker, status.Epoch)
		}
	}
	if r.Complete {
		c.absent(ordinal, h, r, listed)
	}
	return answer, nil
}

// sayable says whether an executor may speak of the state.
func sayable(s model.WorkerState) bool {
	switch s {
	case model.WorkerStarting, model.WorkerRunning, model.WorkerEvicting,
		model.WorkerCompleted, model.WorkerFailed, model.WorkerEvicted:
		return true
	}
	return false
}

// learn moves a worker that has not ended to what its executor says of it,
// never backwards. What an incarnation lists, it has adopted.
func (c *Core) learn(t *task, at slot, w model.TaskWorker, incarnation, sequence int64, status WorkerStatus) {
	if status.State.Terminal() {
		c.settle(t, at, w, status.State, status.ExitCode, status.Error)
		return
	}
	was := w
	if incarnation > w.Incarnation {
		w.Incarnation, w.Sequence = incarnation, sequence
	}
	if f := c.flights[flightKey{false, orderKey{w.Ordinal, t.uid, w.Seat}}]; f != nil && w.State == model.WorkerAssigned {
		w.Attempts = f.attempt
	}
	if status.State != w.State && w.State.MayBecome(status.State) && status.State != model.WorkerEvict {
		w.State = status.State
	}
	if w.State >= model.WorkerEvict && status.State < model.WorkerEvict {
		c.hurry(orderKey{w.Ordinal, t.uid, w.Seat})
	}
	if w != was {
		c.write(t, at, w)
	}
}

// absent takes what a complete report does not list. It proves the absence of
// workers acknowledged before it alone, by that incarnation or an earlier one;
// an order that was never acknowledged may still be on its way.
func (c *Core) absent(ordinal uint32, h *host, r Report, listed map[orderKey]bool) {
	for _, p := range h.placed {
		key := orderKey{ordinal, p.uid, p.seat}
		t, at, _ := c.find(key)
		w := c.read(t, at)
		if listed[key] || w.State.Terminal() {
			continue
		}
		proven := w.Incarnation < r.Incarnation || w.Incarnation == r.Incarnation && w.Sequence < r.Sequence
		switch w.State {
		case model.WorkerStarting, model.WorkerRunning:
			if proven {
				w.State, w.Reason = model.WorkerLost, fault.ReasonNotReported
				c.write(t, at, w)
			}
		case model.WorkerEvict, model.WorkerEvicting:
			// The answer to a stop is what ends it, and comes at once.
			c.hurry(key)
		}
	}
	for o := range h.strays {
		if !listed[o.key] {
			c.drop(o)
		}
	}
}

// hurry sends an order to stop now, instead of after the grace.
func (c *Core) hurry(key orderKey) {
	o := c.orders[key]
	if o != nil && o.kind == orderStop && o.state == model.WorkerEvicting && o.in == &c.due && o.due.After(c.now) {
		c.schedule(o, 0)
	}
}
