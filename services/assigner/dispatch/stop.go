package dispatch

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// dismiss decides the stop of a worker. One that its executor was never asked
// to start has ended with that; of any other the executor has to say so.
func (c *Core) dismiss(t *task, at slot, reason fault.Reason) {
	w := c.read(t, at)
	if w.State >= model.WorkerEvict {
		return
	}
	key := orderKey{w.Ordinal, t.uid, w.ID}
	o := c.orders[key]
	w.State, w.Reason = model.WorkerEvict, reason
	if o != nil && o.kind == orderSubmit && !o.doubt && c.flights[o.flightKey()] == nil {
		w.State = model.WorkerEvicted
	}
	c.write(t, at, w)
}

// dismissAll decides the stop of every worker of a task.
func (c *Core) dismissAll(t *task, reason fault.Reason) {
	for n, chunk := range t.chunks {
		for i := range size(chunk) {
			c.dismiss(t, slot{int32(n), i}, reason)
		}
	}
}

func (c *Core) stopDone(d StopDone) {
	to, ok := c.orderKey(d.Executor, d.UID, d.Worker.ID)
	if !ok {
		return
	}
	key := flightKey{to, instance{d.UID, d.Worker, d.Epoch}}
	f := c.flights[key]
	if f == nil {
		f = &flight{key: key, landed: true}
	}
	c.stopped(f, d.Result)
}

// stopped takes what came of one order to stop a worker. There is no budget:
// the order stands until the end is confirmed or the executor is lost. It is
// word of what was stopped alone, which need not be what is recorded.
func (c *Core) stopped(f *flight, result any) {
	if !f.landed {
		c.land(f)
	}
	c.heard(f, result)
	t, at, found := c.find(f.key.orderKey)
	found = found && t.instance(f.key.workerID) == f.key.stop && !c.read(t, at).State.Terminal()
	acknowledged := false
	switch result := result.(type) {
	case Ended:
		if o := c.host(f.key.ordinal).strays[f.key.stop]; o != nil {
			c.drop(o)
		}
		if found && result.State.Terminal() {
			c.settle(t, at, c.read(t, at), result)
		}
	case Stopping:
		acknowledged = true
		if !found {
			break
		}
		if w := c.read(t, at); w.State == model.WorkerEvict {
			w.State = model.WorkerEvicting
			c.write(t, at, w)
		}
	}
	c.flush()
	switch o := c.standing(f); {
	case o == nil || c.flights[f.key] != nil:
	case acknowledged:
		o.misses = 0
		c.schedule(o, c.again(f.key.uid))
	default:
		c.retry(o)
	}
}

// settle ends a worker as its executor says it ended.
func (c *Core) settle(t *task, at slot, w model.TaskWorker, end Ended) {
	state, exit, message := end.State, end.ExitCode, end.Error
	was := w.State
	w.State, w.ExitCode = state, exit
	if message != "" {
		w.LastError = clip(message)
	}
	exhausted := gaveUp(&w)
	switch {
	case exhausted && (state == model.WorkerEvicted || state == model.WorkerFailed && exit == nil):
		w.State = model.WorkerFailed
		c.giveUp(t, &w)
	case state == model.WorkerEvicted && was < model.WorkerEvict:
		// Nobody told the executor to: it stopped the worker by itself.
		w.Reason = fault.ReasonStopped
	case state == model.WorkerCompleted:
		w.Reason = ""
	case state == model.WorkerFailed && end.Signal != 0:
		w.Reason = fault.ReasonKilled
	case state == model.WorkerFailed && exit != nil:
		w.Reason = fault.ReasonExited
	case state == model.WorkerFailed && was <= model.WorkerStarting:
		w.Reason = fault.ReasonStartFailed
	case state == model.WorkerFailed:
		w.Reason = fault.ReasonKilled
	}
	c.write(t, at, w)
}
