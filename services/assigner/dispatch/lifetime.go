package dispatch

import (
	"cmp"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// lifetime is the end of the lifetime of a RUNNING worker.
type lifetime struct {
	end time.Time
	placed
}

// newLifetimes returns an empty index of lifetimes, in the order of their ends.
func newLifetimes() core.Ordered[lifetime] {
	return core.NewOrdered(func(a, b lifetime) int {
		return cmp.Or(a.end.Compare(b.end), a.placed.compare(b.placed))
	})
}

// lifetimeOf returns how long the workers of a task may be RUNNING, or 0 for no limit. A
// task with quarantined records has no limit, because the core does not act on it.
func (c *Core) lifetimeOf(uid string) time.Duration {
	r := c.reservations[uid]
	if r.Reservation == nil || r.Spec.Lifetime.From != model.FromLive || c.quarantined.uids[uid] {
		return 0
	}
	return r.Spec.Lifetime.For
}

// tallyLifetime adds a worker to the index of lifetimes if by is +1, and removes it if by is
// -1.
func (c *Core) tallyLifetime(t *task, w *model.TaskWorker, by int) {
	if t.lifetime == 0 || w.State != model.WorkerRunning || w.RunningSince.IsZero() {
		return
	}
	l := lifetime{w.RunningSince.Time().Add(t.lifetime), placed{t.uid, w.ID}}
	if by > 0 {
		c.lifetimes.Insert(l)
	} else {
		c.lifetimes.Remove(l)
	}
}

// endLifetimes stops the workers whose lifetime has ended.
func (c *Core) endLifetimes() {
	if first, ok := c.lifetimes.First(); !ok || first.end.After(c.now) {
		return
	}
	for l := range c.lifetimes.All() {
		if l.end.After(c.now) {
			break
		}
		c.setSubject(l.uid)
		t := c.tasks[l.uid]
		at, _ := t.find(l.workerID)
		c.stop(t, at, fault.ReasonLifetime)
	}
	c.flush()
	c.clearSubject()
}
