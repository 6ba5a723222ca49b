package queue

import "berth.dev/pkg/model"

// maxHandOver bounds the tasks of one hand-over.
const maxHandOver = 64

// handing is the hand-over in flight.
type handing struct {
	call int64
	// leader is the term of the assigner's leader that it was made under.
	leader int64
	mods   map[string]int64 // by uid
}

// handOver hands leases over, in the order of the queue. They are out of their
// queues: what is leased is handed over first, head or not. Like a pass, a call is
// overtaken when the assigner has lost the leader under which it was made, or has
// another, and there is more to hand over: to take a task twice is to take it once.
func (c *Core) handOver() {
	if !c.mayHandOver() || c.now.Before(c.handAt) {
		return
	}
	c.calls++
	call := HandOver{Call: c.calls, Term: c.term}
	c.handing = &handing{call: c.calls, leader: c.leaders[model.ServiceAssigner], mods: map[string]int64{}}
	for r := range c.leased.from(0) {
		if len(call.Tasks) == maxHandOver {
			break
		}
		c.handing.mods[r.UID] = r.Mod
		call.Tasks = append(call.Tasks, Task{
			Key: r.Key, UID: r.UID, Mod: r.Mod, Lease: c.versions[r.UID].leaseRevision(), Trace: r.Trace,
		})
	}
	c.handAt = c.now.Add(c.config.MinDelay)
	c.out = append(c.out, call)
}

// mayHandOver says whether a call may be made, as soon as its time has come.
func (c *Core) mayHandOver() bool {
	return c.isReady() && len(c.pending) == 0 && c.leased.len() > 0 &&
		(c.handing == nil || c.leaders[model.ServiceAssigner] != c.handing.leader && c.moreToHandOver())
}

// moreToHandOver says whether the next call would hold what that in flight does not.
func (c *Core) moreToHandOver() bool {
	for i := range min(c.leased.len(), maxHandOver) {
		if r := c.leased.at(i); c.handing.mods[r.UID] != r.Mod {
			return true
		}
	}
	return false
}

// handedOver learns what the assigner answered of the call in flight; any other is of
// the past. What it took is ACTIVE as soon as the view shows the task. What it refused
// as it still is goes to the tail; what changed meanwhile is handed over again as it
// is now.
func (c *Core) handedOver(done HandedOver) {
	if c.handing == nil || c.handing.call != done.Call {
		return
	}
	mods := c.handing.mods
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
