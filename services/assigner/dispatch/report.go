package dispatch

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// report takes in what an executor says of its workers. What it means of each
// of them is model.Reconcile's to say; here is done what follows.
func (c *Core) report(r Report) (Reported, error) {
	ordinal, ok := c.ordinals[r.Executor]
	if !ok {
		return Reported{}, fault.New(fault.Unavailable, fault.ReasonUnavailable, "executor %s is not known here yet", r.Executor)
	}
	h := c.hosts[ordinal]
	current := h.record.Incarnation
	silent := model.Reported{Ordinal: ordinal, Incarnation: r.Incarnation, Sequence: r.Sequence, Complete: r.Complete}
	if model.Reconcile(current, silent, nil) == model.Duplicate {
		return Reported{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %s has incarnation %d, not %d", r.Executor, current, r.Incarnation)
	}
	answer := Reported{Executor: r.Executor, Sequence: r.Sequence, Term: c.term}
	// What is listed under its uid and worker ID is not absent, whatever is said of
	// it: only what is not there at all has left its capacity.
	listed := make(map[placed]bool, len(r.Workers))
	if r.Complete && len(h.strays) > 0 {
		c.dropStraysBut(h, r.Workers)
	}
	strays := map[instance]bool{}
	unordered := 0
	for _, status := range r.Workers {
		c.about(status.UID)
		if !status.State.Reportable() || c.aside.uids[status.UID] {
			listed[placed{status.UID, status.Worker.ID}] = true
			continue
		}
		of := instance{status.UID, status.Worker, status.Epoch}
		t, at, known := c.recorded(of)
		said := silent
		said.Listed, said.Epoch, said.State = true, status.Epoch, status.State
		verdict := model.Reconcile(current, said, known)
		if verdict == model.EndTold {
			answer.Ended = append(answer.Ended, status)
			if o := h.strays[of]; o != nil {
				c.drop(o)
			}
		} else {
			listed[placed{of.uid, of.worker.ID}] = true
		}
		switch {
		case verdict.Stops():
			strays[of] = true
			if !c.stray(ordinal, of, verdict) {
				unordered++
			}
		case known != nil && known.Epoch == status.Epoch && known.Worker.Ordinal == ordinal && !known.Worker.State.Terminal():
			c.learn(t, at, known.Worker, r.Incarnation, r.Sequence, status)
		}
	}
	c.aboutNone()
	if r.Complete {
		c.absent(h, current, silent, listed)
		for of, o := range h.strays {
			if !strays[of] {
				c.drop(o)
			}
		}
	}
	answer.Strays = len(h.strays) + unordered
	return answer, nil
}

// dropStraysBut forgets the orders to stop what an executor does not list any more,
// which leaves room for others.
func (c *Core) dropStraysBut(h *host, workers []WorkerStatus) {
	there := make(map[instance]bool, len(workers))
	for _, w := range workers {
		there[instance{w.UID, w.Worker, w.Epoch}] = true
	}
	for of, o := range h.strays {
		if !there[of] {
			c.drop(o)
		}
	}
}

// recorded answers what is recorded of what an executor has, whichever executor
// that should be; nil where the name is not that of the uid's worker.
func (c *Core) recorded(of instance) (*task, slot, *model.Recorded) {
	t := c.tasks[of.uid]
	if t == nil || !t.active() {
		return nil, slot{}, nil
	}
	at, found := t.find(of.worker.ID)
	if !found || t.worker(of.worker.ID) != of.worker {
		return nil, slot{}, nil
	}
	return t, at, &model.Recorded{Epoch: t.header.Epoch, Worker: c.read(t, at)}
}

// learn moves a worker that has not ended to what its executor says of it,
// never backwards. What an incarnation lists, it has adopted.
func (c *Core) learn(t *task, at slot, w model.TaskWorker, incarnation, sequence int64, status WorkerStatus) {
	was := w
	// A report may overtake the answer to the order.
	if f := c.flights[flightKey{orderKey: orderKey{w.Ordinal, t.uid, w.ID}}]; f != nil && w.State == model.WorkerAssigned {
		w.Attempts = f.attempt
	}
	if status.State.Terminal() {
		c.settle(t, at, w, Ended{State: status.State, ExitCode: status.ExitCode, Signal: status.Signal, Error: status.Error})
		return
	}
	if incarnation > w.Incarnation {
		w.Incarnation, w.Sequence = incarnation, sequence
	}
	if status.State != w.State && w.State.MayBecome(status.State) && status.State != model.WorkerEvict {
		w.State = status.State
	}
	if w.State >= model.WorkerEvict && status.State < model.WorkerEvict {
		c.hurry(orderKey{w.Ordinal, t.uid, w.ID})
	}
	if w != was {
		c.write(t, at, w)
	}
}

// absent takes what a complete report does not list.
func (c *Core) absent(h *host, current int64, silent model.Reported, listed map[placed]bool) {
	for _, p := range h.placed {
		if c.aside.uids[p.uid] {
			continue
		}
		c.about(p.uid)
		key := orderKey{silent.Ordinal, p.uid, p.workerID}
		t, at, _ := c.find(key)
		w := c.read(t, at)
		if listed[p] || w.State.Terminal() {
			continue
		}
		switch model.Reconcile(current, silent, &model.Recorded{Epoch: t.header.Epoch, Worker: w}) {
		case model.Missing:
			w.State, w.Reason = model.WorkerLost, fault.ReasonNotReported
			c.write(t, at, w)
		case model.Await:
			// The answer to a stop is what ends it, and comes at once.
			c.hurry(key)
		}
	}
	c.aboutNone()
}

// hurry sends an order to stop now, instead of after the grace.
func (c *Core) hurry(key orderKey) {
	o := c.orders[key]
	if o != nil && o.kind == orderStop && o.state == model.WorkerEvicting && o.in == &c.due && o.due.After(c.now) {
		c.schedule(o, 0)
	}
}
