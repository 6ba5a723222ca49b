package queue

import "berth.dev/pkg/model"

// maxHandOver bounds the tasks of one hand-over.
const maxHandOver = 64

// handOver hands leases over, in the order of the queue. They are out of their
// queues: what is leased is handed over first, head or not.
func (c *Core) handOver() {
	if !c.mayHandOver() || c.now.Before(c.handAt) {
		return
	}
	call := model.Dispatch{Term: c.term}
	c.handing = map[string]int64{}
	for r := range c.leased.All() {
		if len(call.Tasks) == maxHandOver {
			break
		}
		c.handing[r.UID] = r.Mod
		call.Tasks = append(call.Tasks, model.DispatchTask{
			Key: r.Key, UID: r.UID, Mod: r.Mod, Lease: c.versions[r.UID].leaseRevision(), Trace: r.Trace,
		})
	}
	c.handAt = c.now.Add(c.config.MinDelay)
	c.out = append(c.out, call)
}

// mayHandOver says whether a call may be made, as soon as its time has come.
func (c *Core) mayHandOver() bool {
	return c.isReady() && len(c.pending) == 0 && c.leased.Len() > 0 && c.handing == nil
}

// handedOver learns what the assigner answered of the call in flight. What it took is
// ACTIVE as soon as the view shows the task. What it refused as it still is goes to the tail; what changed meanwhile is handed over again as it
// is now.
func (c *Core) handedOver(done HandedOver) {
	mods := c.handing
	c.handing = nil
	for _, outcome := range done.Outcomes {
		v := c.versions[outcome.UID]
		if v != nil && v.r != nil {
			c.subject = v.r.Ref()
		}
		mod, handed := mods[outcome.UID]
		if handed && outcome.Taken {
			c.counts.Taken++
		} else if handed {
			c.counts.Refused++
		}
		if !handed || v == nil || !v.is(model.Queued) || v.header != nil {
			continue
		}
		switch {
		case outcome.Taken:
			c.taken[v.uid] = v
			c.update(v, func() { v.taken = true })
		case v.r.Mod == mod:
			c.update(v, func() { v.refused = true })
		}
	}
	c.subject = model.Ref{}
}

// forgetTaken hands over again what was taken and has no task in the view for
// as long as the timer runs: nothing rests on an answer alone.
func (c *Core) forgetTaken() {
	for uid, v := range c.taken {
		delete(c.taken, uid)
		c.update(v, func() { v.taken = false })
	}
}
