package queue

import (
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// waiter is a cancel that is answered with value when the last of what it waits
// for is stopped.
type waiter struct {
	token uint64
	value any
	left  int
}

// wait is a version that a waiter waits for, or some workers of it.
type wait struct {
	*waiter
	v       *version
	workers model.WorkerSet // nil for all
}

// over says whether nothing that it waits for will be started any more.
func (w wait) over() bool {
	if w.v.stopped() || w.workers == nil {
		return w.v.stopped()
	}
	if w.v.header == nil || w.v.header.Stopping || w.v.header.Ended {
		return true
	}
	over := 0
	for _, chunk := range w.v.tasks {
		for _, worker := range chunk.Workers {
			if worker.State >= model.WorkerEvict && w.workers.Has(worker.ID) {
				over++
			}
		}
	}
	return over == w.workers.Len()
}

// cancel ends every living version of a key in one effect.
func (c *Core) cancel(token uint64, request Cancel) {
	if err := validateCancel(request.Key.Job, request.RequestID); err != nil {
		c.refuse(token, err)
		return
	}
	call := request.call()
	_, mark := c.remembered(request.Key, request.RequestID)
	idle, wasIdle := c.idle(request.Key, request.RequestID)
	switch {
	case !repeats(mark.Call, call), !repeats(idle.Call, call):
		c.refuse(token, anotherCall(request.RequestID))
		return
	case mark.Cancelled > 0:
		c.replyCancelled(token, c.byKey[request.Key], int(mark.Cancelled))
		return
	case wasIdle:
		c.replyCancelled(token, c.byKey[request.Key], 0)
		return
	}
	versions := c.byKey[request.Key]
	if request.IfEpoch != 0 {
		alive := slices.DeleteFunc(slices.Clone(versions), func(v *version) bool { return v.r.State.Terminal() })
		versions = c.ofEpoch(alive, request.IfEpoch)
		if len(alive) > 0 && len(versions) == 0 {
			c.refuse(token, epochMismatch(request.Key, request.IfEpoch))
			return
		}
	}
	if !slices.ContainsFunc(versions, (*version).alive) {
		c.rememberIdle(request.Key, model.IdleRequest{ID: request.RequestID, Call: call})
	}
	c.cancelAll(token, model.RequestMark{ID: request.RequestID, Call: call}, versions)
}

// ofEpoch are the version of an epoch and what came of it: its parts, and the
// requeues of its workers. The versions are given oldest first.
func (c *Core) ofEpoch(versions []*version, epoch int64) []*version {
	var of []*version
	for _, v := range versions {
		if v.r.Epoch == epoch || slices.ContainsFunc(of, func(from *version) bool { return c.descends(v, from) }) {
			of = append(of, v)
		}
	}
	return of
}

// alive says whether a cancel ends the version.
func (v *version) alive() bool { return v.is(model.Queued) || v.is(model.Active) }

// cancelJob ends every living version of a job.
func (c *Core) cancelJob(token uint64, request CancelJob) {
	if err := validateCancel(request.Job, request.RequestID); err != nil {
		c.refuse(token, err)
		return
	}
	call := request.call()
	var versions []*version
	for key := range c.keys.From(model.Key{Job: request.Job}) {
		if key.Job != request.Job {
			break
		}
		switch _, mark := c.remembered(key, request.RequestID); {
		case !repeats(mark.Call, call):
			c.refuse(token, anotherCall(request.RequestID))
			return
		case mark.Cancelled > 0:
			c.replyCancelled(token, c.versionsOf(request.Job), int(mark.Cancelled))
			return
		}
		versions = append(versions, c.byKey[key]...)
	}
	c.cancelAll(token, model.RequestMark{ID: request.RequestID, Call: call}, versions)
}

// validateCancel refuses a cancel that names no job, or whose ID could not be stored.
// A job whose name is bad is not there, and its cancel succeeds.
func validateCancel(job, id string) error {
	if job == "" {
		return fault.BadField(fault.ReasonRequired, "job", "is empty")
	}
	if id == "" {
		return nil
	}
	return checkName("requestId", id, maxName)
}

func (c *Core) versionsOf(job string) []*version {
	var versions []*version
	for key := range c.keys.From(model.Key{Job: job}) {
		if key.Job != job {
			break
		}
		versions = append(versions, c.byKey[key]...)
	}
	return versions
}

// cancelAll ends versions, many to an effect. The last effect alone carries the
// mark of the call: a repeat that finds it knows that everything was done, and
// one that does not goes on.
func (c *Core) cancelAll(token uint64, mark model.RequestMark, versions []*version) {
	versions = slices.Clone(versions)
	var alive []*version
	for _, v := range versions {
		if v.alive() {
			alive = append(alive, v)
		}
	}
	var effect model.Effect
	for i, v := range alive {
		c.makeRoom(&effect)
		next := c.cancelled(v, &effect)
		if i == len(alive)-1 {
			mark.Cancelled = int32(len(alive))
			remember(next, mark)
			c.decide(effect)
		}
	}
	c.replyCancelled(token, versions, len(alive))
}

// cancelled adds to an effect that a version is cancelled: ended at once where
// the assigner has no task for it, CANCELLING where it has.
func (c *Core) cancelled(v *version, effect *model.Effect) *model.Reservation {
	if !v.started() {
		return c.finish(effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
	}
	if v.dispatched() { // its record had yet to say so
		effect.Events = append(effect.Events, c.event(model.EventReservationAssigned, c.assigned(v)))
	}
	next := c.edit(v.r)
	next.State, next.Reason = model.Cancelling, fault.ReasonCancelled
	effect.Puts = append(effect.Puts, next)
	return next
}

// replyCancelled answers once nothing of the versions will be started any more.
func (c *Core) replyCancelled(token uint64, versions []*version, count int) {
	waits := make([]wait, 0, len(versions))
	for _, v := range versions {
		waits = append(waits, wait{v: v})
	}
	c.replyStopped(token, waits, Cancelled{Count: count})
}

// replyStopped answers with value once all that is waited for is over. An input
// that is given again takes the place of the one that waits.
func (c *Core) replyStopped(token uint64, waits []wait, value any) {
	c.once(func() {
		w := &waiter{token: token, value: value}
		for _, wait := range waits {
			wait.workers = without(wait.workers, without(wait.workers, wait.v.unwanted()))
			if (wait.v.is(model.Cancelling) || len(wait.workers) > 0) && !wait.over() {
				w.left++
				wait.waiter = w
				wait.v.waiters = append(wait.v.waiters, wait)
			}
		}
		if c.waiting[token] = w; w.left == 0 {
			c.answer(w)
		}
	})
}

// answerFreed answers the cancels of which the last that they wait for is over.
func (c *Core) answerFreed() {
	for _, v := range c.freed {
		var left []wait
		for _, w := range v.waiters {
			if !w.over() {
				left = append(left, w)
			} else if w.left--; w.left == 0 {
				c.answer(w.waiter)
			}
		}
		v.waiters = left
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
