package queue

import (
	"slices"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// waiter is a cancel that is answered when the last version it waits for is
// stopped.
type waiter struct {
	token uint64
	count int
	left  int
}

// cancel ends every living version of a key in one effect.
func (c *Core) cancel(token uint64, request Cancel) {
	if _, mark := c.remembered(request.Key, request.RequestID); mark.Cancelled > 0 {
		c.replyCancelled(token, c.byKey[request.Key], int(mark.Cancelled))
		return
	}
	if _, ok := c.idle(request.Key, request.RequestID); ok {
		c.replyCancelled(token, c.byKey[request.Key], 0)
		return
	}
	versions := c.byKey[request.Key]
	if request.IfEpoch != 0 {
		alive := slices.DeleteFunc(slices.Clone(versions), func(v *version) bool { return v.r.State.Terminal() })
		versions = slices.DeleteFunc(slices.Clone(alive), func(v *version) bool { return v.r.Epoch != request.IfEpoch })
		if len(alive) > 0 && len(versions) == 0 {
			c.refuse(token, epochMismatch(request.Key, request.IfEpoch))
			return
		}
	}
	if !slices.ContainsFunc(versions, (*version).alive) {
		c.rememberIdle(request.Key, model.IdleRequest{ID: request.RequestID})
	}
	c.cancelAll(token, request.RequestID, versions)
}

// alive says whether a cancel ends the version.
func (v *version) alive() bool { return v.is(model.Queued) || v.is(model.Active) }

// cancelJob ends every living version of a job.
func (c *Core) cancelJob(token uint64, request CancelJob) {
	var versions []*version
	for key := range c.keys.from(c.keys.rank(model.Key{Job: request.Job})) {
		if key.Job != request.Job {
			break
		}
		if _, mark := c.remembered(key, request.RequestID); mark.Cancelled > 0 {
			c.replyCancelled(token, c.versionsOf(request.Job), int(mark.Cancelled))
			return
		}
		versions = append(versions, c.byKey[key]...)
	}
	c.cancelAll(token, request.RequestID, versions)
}

func (c *Core) versionsOf(job string) []*version {
	var versions []*version
	for key := range c.keys.from(c.keys.rank(model.Key{Job: job})) {
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
func (c *Core) cancelAll(token uint64, id string, versions []*version) {
	versions = slices.Clone(versions)
	var alive []*version
	for _, v := range versions {
		if v.alive() {
			alive = append(alive, v)
		}
	}
	for rest := alive; len(rest) > 0; {
		n := min(len(rest), effectReservations)
		var effect model.Effect
		for i, v := range rest[:n] {
			next := c.cancelled(v, &effect)
			if len(rest) == n && i == n-1 {
				remember(next, model.RequestMark{ID: id, Cancelled: int32(len(alive))})
			}
		}
		c.decide(effect)
		rest = rest[n:]
	}
	c.replyCancelled(token, versions, len(alive))
}

// cancelled adds to an effect that a version is cancelled: ended at once where
// the assigner has no task for it, CANCELLING where it has.
func (c *Core) cancelled(v *version, effect *model.Effect) *model.Reservation {
	if !v.started() {
		return c.finish(effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
	}
	next := c.edit(v.r)
	next.State, next.Reason = model.Cancelling, fault.ReasonCancelled
	effect.Puts = append(effect.Puts, next)
	return next
}

// replyCancelled answers once nothing of the versions will be started any more.
// An input that is given again takes the place of the one that waits.
func (c *Core) replyCancelled(token uint64, versions []*version, count int) {
	c.once(func() {
		w := &waiter{token: token, count: count}
		for _, v := range versions {
			if !v.stopped() && v.is(model.Cancelling) {
				w.left++
				v.waiters = append(v.waiters, w)
			}
		}
		if c.waiting[token] = w; w.left == 0 {
			c.answer(w)
		}
	})
}

// answerFreed answers the cancels whose last version was stopped.
func (c *Core) answerFreed() {
	for _, v := range c.freed {
		if !v.stopped() {
			continue
		}
		for _, w := range v.waiters {
			if w.left--; w.left == 0 {
				c.answer(w)
			}
		}
		v.waiters = nil
	}
	c.freed = nil
}

func (c *Core) answer(w *waiter) {
	if c.waiting[w.token] != w {
		return
	}
	delete(c.waiting, w.token)
	c.out = append(c.out, model.Reply{Token: w.token, Value: Cancelled{Count: w.count}})
}
