package dispatch

import (
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// review looks at every task and executor that something happened to, and
// decides what follows from the records. It is the same on taking over, on a
// change and after a rollback.
func (c *Core) review() {
	for len(c.dirtyHosts)+len(c.dirtyTasks)+len(c.dirtyRefusals) > 0 {
		c.reviewRefusals()
		for _, ordinal := range slices.Sorted(maps.Keys(c.dirtyHosts)) {
			delete(c.dirtyHosts, ordinal)
			c.reviewHost(ordinal)
		}
		for _, uid := range slices.Sorted(maps.Keys(c.dirtyTasks)) {
			delete(c.dirtyTasks, uid)
			if t := c.tasks[uid]; t != nil && t.header != nil && !c.aside.uids[uid] {
				c.about(uid)
				c.reviewTask(t)
			}
		}
		c.aboutNone()
	}
}

// reviewHost gives up the workers of an executor that is lost, stops those of one
// that is to be empty, and gives up those that one has not taken that refuses this
// service.
func (c *Core) reviewHost(ordinal uint32) {
	h := c.hosts[ordinal]
	refuses := h != nil && c.refuses(h)
	if h == nil || !h.lost() && !h.record.Draining && !refuses || h.record == nil && (!c.ready || c.aside.hosts) {
		return
	}
	for _, p := range h.placed {
		if c.aside.uids[p.uid] {
			continue
		}
		c.about(p.uid)
		t, at, _ := c.find(orderKey{ordinal, p.uid, p.workerID})
		if !h.lost() && h.record.Draining {
			c.dismiss(t, at, fault.ReasonExecutorDraining)
			continue
		}
		if !h.lost() {
			c.abandon(t, at)
			continue
		}
		c.lose(t, at, c.read(t, at), fault.ReasonExecutorLost)
	}
	c.flush()
	c.aboutNone()
}

// lose ends a worker of which nobody knows whether it runs. One that could not be
// started is given up for that: it is worth more to know than how it went.
func (c *Core) lose(t *task, at slot, w model.TaskWorker, reason fault.Reason) {
	w.State = model.WorkerLost
	if gaveUp(&w) {
		c.giveUp(t, &w)
	} else {
		w.Reason = reason
	}
	c.write(t, at, w)
}

func (c *Core) reviewTask(t *task) {
	r, l := c.reservations[t.uid], c.leases[t.uid]
	over := r.Reservation == nil || r.State.Terminal()
	switch {
	case r.Reservation == nil && !c.ready:
	case !t.header.Complete:
		c.resume(t, r, l)
	case t.header.Ended:
		if over && len(l.chunks) == 0 {
			c.remove(t)
		}
	case (r.ends() || t.header.Stopping) && (!t.header.Stopping || t.startable() > 0):
		c.stopAll(t, r)
	case t.leaving > 0:
		c.stopUnwanted(t)
	}
}

// resume completes a task that a predecessor began, or removes it when what it
// was made from is gone. Nothing of it was ever submitted.
func (c *Core) resume(t *task, r reservation, l lease) {
	if r.ends() || l.create != t.header.Lease || !l.whole() {
		c.remove(t)
		return
	}
	c.put(r, l)
}

// stopAll decides the stop of every worker that has not ended.
func (c *Core) stopAll(t *task, r reservation) {
	c.draft(t).stopping = !t.header.Stopping
	reason := fault.ReasonCancelled
	switch {
	case !r.ends():
		reason = t.header.Reason
	case r.Reservation != nil && r.Reason != "":
		reason = r.Reason
	}
	c.dismissAll(t, reason)
	c.flush()
}

// stopUnwanted decides the stop of the workers that were cancelled one by one.
func (c *Core) stopUnwanted(t *task) {
	for workerID := range t.unwanted.All() {
		if at, found := t.find(workerID); found {
			c.dismiss(t, at, fault.ReasonCancelled)
		}
	}
	c.flush()
}

// remove deletes a task, the header last, so that a successor that finds a part
// goes on.
func (c *Core) remove(t *task) {
	var refs []model.Ref
	for n, chunk := range t.chunks {
		if chunk != nil {
			refs = append(refs, model.Ref{Kind: model.KindTaskChunk, ID: t.uid, Chunk: int32(n)})
		}
	}
	refs = append(refs, t.header.Ref())
	for part := range slices.Chunk(refs, maxPuts) {
		c.decide(model.Effect{Deletes: part})
	}
}
