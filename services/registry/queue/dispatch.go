package queue

import "berth.dev/pkg/model"

// maxDispatch bounds the tasks of one dispatch.
const maxDispatch = 64

// dispatch dispatches leased versions in the order of the queue, whether or not they were
// heads of their groups.
func (c *Core) dispatch() {
	if !c.mayDispatch() || c.now.Before(c.nextDispatch) {
		return
	}
	call := model.Dispatch{Term: c.term}
	c.dispatching = map[string]int64{}
	for r := range c.leased.All() {
		if len(call.Tasks) == maxDispatch {
			break
		}
		c.dispatching[r.UID] = r.Mod
		call.Tasks = append(call.Tasks, model.DispatchTask{
			Key: r.Key, UID: r.UID, Mod: r.Mod, Lease: c.versions[r.UID].leaseRevision(), Trace: r.Trace,
		})
	}
	c.nextDispatch = c.now.Add(c.config.Scheduling.MinDelay)
	c.out = append(c.out, call)
}

// mayDispatch reports whether a dispatch may start at nextDispatch: the registry is
// ready, every decision is durable, a leased version waits, and no dispatch is in flight.
func (c *Core) mayDispatch() bool {
	return c.isReady() && len(c.pending) == 0 && c.leased.Len() > 0 && c.dispatching == nil
}

// dispatchDone applies the assigner's answer to the dispatch in flight. An accepted
// version becomes ACTIVE when the view shows its task. A refused version goes to the
// tail, unless it has changed since it was sent: then the changed version is dispatched.
func (c *Core) dispatchDone(done DispatchDone) {
	revisions := c.dispatching
	c.dispatching = nil
	for _, outcome := range done.Outcomes {
		revision, sent := revisions[outcome.UID]
		if !sent {
			continue
		}
		if outcome.Accepted {
			c.counts.Taken++
		} else {
			c.counts.Refused++
		}
		v := c.versions[outcome.UID]
		if v == nil || !v.is(model.Queued) || v.header != nil {
			continue
		}
		c.subject = v.r.Ref()
		switch {
		case outcome.Accepted:
			c.accepted[v.uid] = v
			c.update(v, func() { v.accepted = true })
		case v.r.Mod == revision:
			c.update(v, func() { v.refused = true })
		}
	}
	c.subject = model.Ref{}
}

// retryAccepted dispatches accepted versions again if the view does not show their task
// when the timer fires. So nothing relies on an answer alone.
func (c *Core) retryAccepted() {
	for uid, v := range c.accepted {
		delete(c.accepted, uid)
		c.update(v, func() { v.accepted = false })
	}
}
