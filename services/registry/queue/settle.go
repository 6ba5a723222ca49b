package queue

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// settle makes the changes that the records call for and no request makes. It ends
// versions whose work has ended, expires and withdraws versions, puts versions into their
// queues at their time, and forgets versions that ended long ago. It uses only indexes of the
// current state, so the next leader repeats a step that was lost. It follows the order of the
// queue, so reservations that are refused together keep this order at the tail.
func (c *Core) settle() {
	budget := maxDerived
	due := c.inOrder(c.unsettled)
	for _, v := range due[:min(len(due), budget)] {
		budget--
		if c.unsettled[v.uid] != v {
			continue // an earlier version of the list has ended it
		}
		c.subject = v.r.Ref()
		c.settleOne(v)
	}
	for ; budget > 0 && c.isDue(&c.clocks); budget-- {
		c.passClock(c.firstOf(&c.clocks))
	}
	for ; budget > 0 && (c.isDue(&c.ended) || c.tooManyEnded()); budget-- {
		c.forget(c.firstOf(&c.ended))
	}
	c.subject = model.Ref{}
}

func (c *Core) isDue(set *core.Ordered[deadline]) bool {
	first, ok := set.First()
	return ok && !first.at.After(c.now)
}

// firstOf returns the version with the first deadline, and makes it the subject of the
// step.
func (c *Core) firstOf(set *core.Ordered[deadline]) *version {
	v := c.versions[set.At(0).uid]
	c.subject = v.r.Ref()
	return v
}

func (c *Core) settleOne(v *version) {
	switch {
	case v.is(model.Queued) && v.header != nil:
		c.activate(v)
	case v.is(model.Queued) && len(v.r.Unwanted) > 0: // its task was withdrawn
		c.remove([]removal{{v: v, workers: v.r.Unwanted}}, model.RequestMark{})
	case v.is(model.Queued) && v.refused:
		c.moveToTail(v)
	case takesLatest(v):
		var effect model.Effect
		c.takeLatest(&effect, v, c.edit(v.r))
		c.decide(effect)
	case c.isLosing(v):
		c.withdraw(v)
	case v.is(model.Queued):
		c.split(v)
	case v.is(model.Active) && c.endingOf(v) != (ending{}):
		c.endReservation(c.firstEnding(v))
	case v.restarts():
		c.restartGang(v)
	case v.is(model.Active) && c.owesRequeue(v):
		c.requeue(v)
	case v.is(model.Active) && v.header != nil && v.header.Withdrawn:
		c.nextRound(v)
	case v.is(model.Active) && v.gaveUpAll():
		c.conclude(v, model.Failed, model.EventReservationFailed, v.firstReason(),
			withEarlier(v.r, roundText(v.r.Failures+1, c.failuresByReason(v))))
	case v.is(model.Active) && v.gaveUp():
		c.conclude(v, model.Completed, model.EventReservationCompleted, fault.ReasonRoundsExhausted, "")
	case v.is(model.Active):
		c.conclude(v, model.Completed, model.EventReservationCompleted, "", "")
	default:
		c.endCancelled(v)
	}
}

// endCancelled ends a CANCELLING version. If it expired, it is EXPIRED, and if its workers have
// decided the end of the reservation, it has their result.
func (c *Core) endCancelled(v *version) {
	state, kind := model.Cancelled, model.EventReservationCancelled
	switch v.r.Reason {
	case fault.ReasonExpired:
		state, kind = model.Expired, model.EventReservationExpired
	case fault.ReasonGangFailed:
		state, kind = model.Failed, model.EventReservationFailed
	case fault.ReasonCompletesWith:
		state, kind = model.Completed, model.EventReservationCompleted
	}
	var expect []model.Expect
	if v.header == nil {
		expect = append(expect, noTask(v.uid))
	}
	c.put(c.end(v.r, state, v.r.Reason, v.r.Message), kind, expect...)
}

// noteWithin is how soon the record of a dispatched version says ACTIVE. Every reader
// sees ACTIVE from the complete task on, so the record can wait to share another
// transaction.
const noteWithin = 20 * time.Millisecond

// noteActive records ACTIVE for dispatched versions as soon as anything else is written,
// or at noteAt.
func (c *Core) noteActive() {
	switch {
	case len(c.pendingActive) == 0:
		c.noteAt = time.Time{}
		return
	case c.noteAt.IsZero():
		c.noteAt = c.now.Add(noteWithin)
	}
	if len(c.pending) == 0 && c.now.Before(c.noteAt) {
		return
	}
	all := c.inOrder(c.pendingActive)
	for _, v := range all[:min(len(all), maxDerived)] {
		c.subject = v.r.Ref()
		c.activate(v)
	}
	c.subject = model.Ref{}
	if len(c.pendingActive) == 0 {
		c.noteAt = time.Time{}
	}
}

// activate records that a version was dispatched completely.
func (c *Core) activate(v *version) { c.put(c.activated(v), model.EventReservationAssigned) }

// activated returns the ACTIVE record of a version that was dispatched completely. No worker of
// it was queued again before, so from now on the record can name all that are.
func (c *Core) activated(v *version) *model.Reservation {
	next := c.edit(v.r)
	next.State, next.Reason, next.RecordsRequeues = model.Active, "", true
	if next.Round == 0 { // later rounds keep the messages of earlier rounds
		next.Message = ""
	}
	return next
}

// moveToTail queues a version that the assigner refused behind all others, under a new
// UID. So the refused lease belongs to an ended version, and executor-state deletes it as
// orphaned. Its workers had executors, so queueTimeout does not limit the wait any more. Their next round
// has the place and the priority of the request again.
func (c *Core) moveToTail(v *version) {
	old := c.end(v.r, model.Replaced, fault.ReasonDispatchRejected,
		"the assigner refused the lease; queued again at the tail")
	next := c.newVersion(v.r)
	next.Place, next.PlaceEpoch, next.RefusedEpoch = c.newPlace(), 0, c.orderedEpoch(v.r)
	next.Granted = true
	c.decide(model.Effect{
		Puts:   []model.Record{old, next},
		Expect: []model.Expect{noTask(old.UID)},
		Events: []model.JobEvent{
			c.event(model.EventReservationReplaced, old),
			c.event(model.EventReservationQueued, next),
		},
	})
}

// passClock acts on a version whose deadline has passed: it expires, or it enters its queue.
func (c *Core) passClock(v *version) {
	expires := v.r.ExpiresAt()
	switch {
	case !expires.IsZero() && !expires.After(c.now) && v.started():
		var effect model.Effect
		c.stopStarted(&effect, v, fault.ReasonExpired)
		c.decide(effect)
	case !expires.IsZero() && !expires.After(c.now):
		c.expire(v, fault.ReasonExpired)
	case v.isDelayed():
		c.update(v, func() {})
	case v.isHeld():
		c.expire(v, fault.ReasonHoldTimeout)
	default:
		c.expire(v, fault.ReasonQueueTimeout)
	}
}

// expire ends a version whose wait, hold or lifetime is over, while other versions of its reservation may
// live.
func (c *Core) expire(v *version, reason fault.Reason) {
	effect := c.keepRequest(v)
	c.finish(&effect, v, model.Expired, model.EventReservationExpired, reason, "")
	c.decide(effect)
}

// forget deletes the record of an ended version; see forgetSome if its reservation has others. It keeps a
// version that answers for the missing workers of another name, unless too many have ended.
// With the last version of a job, it also
// deletes the records of the job's stages.
func (c *Core) forget(v *version) {
	if c.keepList(v) { // a later step forgets it
		return
	}
	if !c.tooManyEnded() && c.closesGap(v) {
		c.update(v, func() { v.keepUntil = c.now.Add(c.config.KeepEnded) })
		return
	}
	if len(c.byKey[v.r.Key]) > 1 && c.forgetSome(v) {
		return
	}
	var deletes []model.Ref
	if job := v.r.Key.Job; c.isLastOf(job) && !c.hasQuarantine(job) {
		for key := range within(&c.stageKeys, model.Key{Job: job}, model.Key{}) {
			deletes = append(deletes, c.stages[key].Ref())
		}
	}
	for len(deletes) >= 2*effectReservations {
		c.decide(model.Effect{Deletes: deletes[:effectReservations]})
		deletes = deletes[effectReservations:]
	}
	c.decide(model.Effect{Deletes: append(deletes, v.r.Ref())})
}
