package handout

import (
	"maps"
	"slices"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// review looks at every task and executor that something happened to, and
// decides what follows from the records. It is the same on taking over, on a
// change and after a rollback.
func (c *Core) review() {
	for len(c.dirtyHosts)+len(c.dirtyTasks) > 0 {
		for _, ordinal := range slices.Sorted(maps.Keys(c.dirtyHosts)) {
			delete(c.dirtyHosts, ordinal)
			c.reviewHost(ordinal)
		}
		for _, uid := range slices.Sorted(maps.Keys(c.dirtyTasks)) {
			delete(c.dirtyTasks, uid)
			if t := c.tasks[uid]; t != nil && t.header != nil {
				c.reviewTask(t)
			}
		}
	}
}

// reviewHost gives up the workers of an executor that is lost.
func (c *Core) reviewHost(ordinal uint32) {
	h := c.hosts[ordinal]
	if h == nil || !h.lost() {
		return
	}
	for _, p := range h.placed {
		t, at, _ := c.find(orderKey{ordinal, p.uid, p.seat})
		w := c.read(t, at)
		w.State = model.WorkerLost
		// A worker whose attempts were spent is LOST too: nobody knows whether
		// it runs. Why it was to go is still worth more than how it went.
		if w.Reason != fault.ReasonAttemptsExhausted {
			w.Reason = fault.ReasonExecutorLost
		}
		c.write(t, at, w)
	}
	c.flush()
}

func (c *Core) reviewTask(t *task) {
	r, l := c.reservations[t.uid], c.leases[t.uid]
	over := r.Reservation == nil || r.State.Terminal()
	switch {
	case !t.header.Complete:
		c.resume(t, r, l)
	case t.header.Ended:
		if over && len(l.chunks) == 0 {
			c.remove(t)
		}
	case (r.ends() || t.header.Stopping) && (!t.header.Stopping || t.startable() > 0):
		c.stopAll(t, r)
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
	if r.Reservation != nil && r.Reason != "" {
		reason = r.Reason
	}
	for n, chunk := range t.chunks {
		for i := range size(chunk) {
			w := chunk.Workers[i]
			if w.State < model.WorkerEvict {
				w.State, w.Reason = model.WorkerEvict, reason
				c.write(t, slot{int32(n), i}, w)
			}
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
