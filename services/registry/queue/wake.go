package queue

import (
	"maps"
	"time"

	"berth.dev/pkg/model"
)

// wakeUp ends the debounce and drives the timer that runs while anything waits.
// Before the registry is ready nothing is tried, so nothing is to be woken.
func (c *Core) wakeUp() {
	if !c.isReady() {
		c.wakeAt, c.retryAt = time.Time{}, time.Time{}
		return
	}
	if !c.wakeAt.IsZero() && !c.now.Before(c.wakeAt) {
		c.wakeAt = time.Time{}
		c.wake(WakeInventory)
	}
	switch {
	case len(c.groups) == 0 && len(c.taken) == 0:
		c.retryAt = time.Time{}
	case c.retryAt.IsZero():
		c.retryAt = c.now.Add(c.config.RetryEvery)
	case !c.now.Before(c.retryAt):
		c.retryAt = c.now.Add(c.config.RetryEvery)
		c.forgetTaken()
		c.wake(WakeTimer)
	}
}

// wake lets every head be tried.
func (c *Core) wake(cause WakeCause) {
	c.wakes++
	maps.Copy(c.due, c.groups)
	c.causes[cause] = c.causes[cause] || len(c.groups) > 0
}

// makeDue lets the head of one queue be tried at once.
func (c *Core) makeDue(g *group) {
	if c.due[g.id] == nil {
		c.due[g.id] = g
		c.causes[c.cause] = c.term != 0
	}
}

// causeOf is why what becomes due while an event is taken does.
func causeOf(event model.Event) WakeCause {
	switch e := event.(type) {
	case model.Input:
		if _, upsert := e.Request.(model.Upsert); !upsert {
			return WakeCancel
		}
	case model.Changed, model.Progress, CycleDone:
		return WakeSuccess
	}
	return WakeChange
}

// countCycle counts a cycle that starts, and what triggers it.
func (c *Core) countCycle() {
	c.counts.Cycles++
	for cause, had := range c.causes {
		if had {
			c.counts.WakeUps[cause]++
		}
	}
	clear(c.causes[:])
}
