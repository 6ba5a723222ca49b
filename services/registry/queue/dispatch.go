package queue

import "berth.dev/pkg/model"

// maxDispatch bounds the tasks of one dispatch.
const maxDispatch = 64

// dispatch dispatches leases, in the order of the queue. They are out of their
// queues: what is leased is dispatched first, head or not.
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
	c.nextDispatch = c.now.Add(c.config.MinDelay)
	c.out = append(c.out, call)
}

// mayDispatch says whether a call may be made, as soon as its time has come.
func (c *Core) mayDispatch() bool {
	return c.isReady() && len(c.pending) == 0 && c.leased.Len() > 0 && c.dispatching == nil
}

// dispatchDone takes what the assigner answered to the call in flight. What it took is
// ACTIVE as soon as the view shows the task. What it refused as it still is goes to the
// tail; what changed meanwhile is dispatched again as it is now.
func (c *Core) dispatchDone(done DispatchDone) {
	mods := c.dispatching
	c.dispatching = nil
	for _, outcome := range done.Outcomes {
		v := c.versions[outcome.UID]
		if v != nil && v.r != nil {
			c.subject = v.r.Ref()
		}
		mod, sent := mods[outcome.UID]
		if sent && outcome.Accepted {
			c.counts.Taken++
		} else if sent {
			c.counts.Refused++
		}
		if !sent || v == nil || !v.is(model.Queued) || v.header != nil {
			continue
		}
		switch {
		case outcome.Accepted:
			c.taken[v.uid] = v
			c.update(v, func() { v.taken = true })
		case v.r.Mod == mod:
			c.update(v, func() { v.refused = true })
		}
	}
	c.subject = model.Ref{}
}

// forgetTaken dispatches again what was taken and has no task in the view for
// as long as the timer runs: nothing rests on an answer alone.
func (c *Core) forgetTaken() {
	for uid, v := range c.taken {
		delete(c.taken, uid)
		c.update(v, func() { v.taken = false })
	}
}
