package dispatch

import (
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// dirty reports whether there is anything to review.
func (c *Core) dirty() bool { return len(c.dirtyHosts)+len(c.dirtyTasks)+len(c.dirtyRefusals) > 0 }

// review looks at every marked task, executor and refusal, and decides what follows from
// the records. A new leader, a change and a rollback all mark objects for review.
func (c *Core) review() {
	for c.dirty() {
		for _, id := range take(c.dirtyRefusals) {
			c.reviewRefusal(id)
		}
		for _, ordinal := range take(c.dirtyHosts) {
			c.reviewHost(ordinal)
		}
		for _, uid := range take(c.dirtyTasks) {
			if t := c.tasks[uid]; t != nil && t.header != nil && !c.quarantined.uids[uid] {
				c.setSubject(uid)
				c.reviewTask(t)
			}
		}
		c.clearSubject()
	}
}

// reviewHost makes the workers of a lost executor LOST, and stops the workers of a draining
// executor. If an executor refuses this service, reviewHost gives up the workers that the
// executor has not started, and if it is silent, those about which it answers no request.
func (c *Core) reviewHost(ordinal uint32) {
	h := c.hosts[ordinal]
	if h == nil || !c.clears(h) || h.record == nil && c.maybeUnknown() {
		return
	}
	for _, p := range h.placed {
		if c.quarantined.uids[p.uid] {
			continue
		}
		c.setSubject(p.uid)
		t, at, _ := c.find(workerKey{ordinal, p.uid, p.workerID})
		switch {
		case h.lost():
			w := c.read(t, at)
			w.Unconfirmed = false
			c.lose(t, at, w, fault.ReasonExecutorLost)
			continue
		case h.draining():
			c.stop(t, at, fault.ReasonExecutorDraining)
			c.hastenWorker(workerKey{ordinal, p.uid, p.workerID})
		case c.refuses(h):
			c.giveUpUnstarted(t, at)
		}
		if h.silent() {
			c.giveUpUnanswered(t, at)
		}
	}
	c.flush()
	c.clearSubject()
}

// maybeUnknown reports whether an executor without a record in memory may exist: the
// registry is not ready, or records of executors are quarantined.
func (c *Core) maybeUnknown() bool { return !c.ready || c.quarantined.hosts }

// lose makes a worker LOST that may or may not run. If the worker was given up because it
// could not be started, it keeps its reason, which is more specific.
func (c *Core) lose(t *task, at slot, w model.TaskWorker, reason fault.Reason) {
	w.State = model.WorkerLost
	if !w.GaveUp() {
		w.Reason = reason
	}
	if !w.Unconfirmed {
		w.UnansweredSince = 0
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
	case (r.ends() || t.header.Stopping) && (!t.header.Stopping || t.wanted() > 0):
		c.stopTask(t, r)
	case t.leaving > 0:
		c.stopUnwanted(t)
	case !t.header.Stopping && r.Spec.OnWorkerFailure == model.OnFailedRestart:
		if cause := c.restartOf(t); cause != nil {
			c.withdrawWith(t, cause)
		}
	}
}

// resume completes a task that an earlier leader began. If its reservation or lease has
// ended, resume removes the task, because none of its workers was ever started.
func (c *Core) resume(t *task, r reservation, l lease) {
	if r.ends() || l.create != t.header.Lease || !l.whole() {
		c.remove(t)
		return
	}
	c.createTask(r, l)
}

// stopTask stops every worker that has not ended.
func (c *Core) stopTask(t *task, r reservation) {
	c.draft(t).stopping = !t.header.Stopping
	reason := fault.ReasonCancelled
	switch {
	case !r.ends():
		reason = t.header.Reason
	case r.Reservation != nil && r.Reason != "":
		reason = r.Reason
	}
	c.stopAll(t, reason)
	c.flush()
}

// stopUnwanted stops the workers that were cancelled one by one.
func (c *Core) stopUnwanted(t *task) {
	for workerID := range t.unwanted.All() {
		if at, found := t.find(workerID); found {
			c.stop(t, at, fault.ReasonCancelled)
		}
	}
	c.flush()
}

// remove deletes a task. It deletes the header last, so that a successor can continue if
// only some of the effects become durable.
func (c *Core) remove(t *task) {
	var refs []model.Ref
	for n, chunk := range t.chunks {
		for i := range size(chunk) {
			// The leader that recorded the end may not have recorded this.
			if parent, at, worker, changed := c.laterWorker(t, &chunk.Workers[i]); changed {
				c.write(parent, at, worker)
				c.flush() // before the record that says so is deleted
			}
		}
		if chunk != nil {
			refs = append(refs, model.Ref{Kind: model.KindTaskChunk, ID: t.uid, Chunk: int32(n)})
		}
	}
	refs = append(refs, t.header.Ref())
	for part := range slices.Chunk(refs, maxPuts) {
		c.decide(model.Effect{Deletes: part})
	}
}
