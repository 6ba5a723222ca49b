package queue

import "berth.dev/pkg/model"

// waiter is a cancel that is answered with value once all its waits are over. left counts
// the waits that are not over.
type waiter struct {
	token uint64
	value any
	left  int
}

// wait is a version, or some of its workers, for whose stop a waiter waits.
type wait struct {
	*waiter
	v       *version
	workers model.WorkerSet // nil for all
}

// isOver reports whether none of the workers will be started any more.
func (w wait) isOver() bool {
	if w.v.stopped() || w.workers == nil {
		return w.v.stopped()
	}
	if w.v.header == nil || w.v.header.Stopping || w.v.header.Ended {
		return true
	}
	over := 0
	for worker := range w.v.taskWorkers() {
		if worker.State >= model.WorkerEvict && w.workers.Has(worker.ID) {
			over++
		}
	}
	return over == w.workers.Len()
}

// replyCancelled replies with value once none of the versions will be started any more.
func (c *Core) replyCancelled(token uint64, versions []*version, value Cancelled) {
	waits := make([]wait, 0, len(versions))
	for _, v := range versions {
		waits = append(waits, wait{v: v})
	}
	c.replyStopped(token, waits, value)
}

// replyStopped replies with value once all waits are over. If an input is repeated, its
// new waiter replaces the earlier one.
func (c *Core) replyStopped(token uint64, waits []wait, value any) {
	c.once(func() {
		w := &waiter{token: token, value: value}
		for _, wait := range waits {
			var unwanted model.WorkerSet
			if wait.v.r != nil {
				unwanted = wait.v.r.Unwanted
			}
			wait.workers = without(wait.workers, without(wait.workers, unwanted))
			if (wait.v.is(model.Cancelling) || len(wait.workers) > 0) && !wait.isOver() {
				w.left++
				wait.waiter = w
				wait.v.waits = append(wait.v.waits, wait)
			}
		}
		if c.waiting[token] = w; w.left == 0 {
			c.answer(w)
		}
	})
}

// answerFreed answers the cancels whose last wait is over.
func (c *Core) answerFreed() {
	for _, v := range c.freed {
		var left []wait
		for _, w := range v.waits {
			if !w.isOver() {
				left = append(left, w)
			} else if w.left--; w.left == 0 {
				c.answer(w.waiter)
			}
		}
		v.waits = left
	}
	c.freed = nil
}

func (c *Core) answer(w *waiter) {
	if c.waiting[w.token] != w {
		return
	}
	delete(c.waiting, w.token)
	c.out = append(c.out, model.Reply{Token: w.token, Value: w.value})
}
