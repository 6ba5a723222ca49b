package queue

import (
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// settle makes the changes that the records call for and no request does: what
// has ended ends, what waited too long expires, what ended long ago is forgotten. It looks at indexes of the state as it is,
// so a step that was lost is found again; and in the order of the queue, in
// which what is refused together goes to the tail.
func (c *Core) settle() {
	budget := maxDerived
	due := slices.SortedFunc(maps.Values(c.unsettled), func(a, b *version) int { return c.compare(a.r, b.r) })
	for _, v := range due {
		if budget == 0 {
			break
		}
		budget--
		c.subject = v.r.Ref()
		c.settleOne(v)
	}
	for ; budget > 0 && c.deadlines.Len() > 0; budget-- {
		first := c.deadlines.At(0)
		if first.at.After(c.now) {
			break
		}
		v := c.versions[first.uid]
		c.subject = v.r.Ref()
		c.overdue(v)
	}
	for ; budget > 0 && c.tooManyEnded(); budget-- {
		v := c.versions[c.ended.At(0).uid]
		c.subject = v.r.Ref()
		c.overdue(v)
	}
	c.subject = model.Ref{}
}

func (c *Core) settleOne(v *version) {
	switch {
	case v.is(model.Queued) && v.header != nil:
		c.active(v)
	case v.is(model.Queued) && len(v.r.Unwanted) > 0: // its task was withdrawn
		c.remove([]removal{{v, v.r.Unwanted}}, model.RequestMark{})
	case v.is(model.Queued) && v.refused:
		c.toTail(v)
	case v.is(model.Queued):
		c.split(v)
	case v.is(model.Active) && c.owes(v):
		c.requeue(v)
	case v.is(model.Active) && v.header != nil && v.header.Withdrawn:
		c.nextRound(v)
	case v.is(model.Active) && v.neverStarted():
		c.put(c.end(v.r, model.Failed, v.firstReason(), roundMessage(v.r, c.whyNone(v))), model.EventReservationFailed)
	case v.is(model.Active):
		c.put(c.end(v.r, model.Completed, "", ""), model.EventReservationCompleted)
	case v.header == nil:
		c.put(c.end(v.r, model.Cancelled, v.r.Reason, v.r.Message), model.EventReservationCancelled, noTask(v.uid))
	default:
		c.put(c.end(v.r, model.Cancelled, v.r.Reason, v.r.Message), model.EventReservationCancelled)
	}
}

// noteWithin is how long it may take until the record of what was dispatched says
// so. To everyone it is ACTIVE from its task on, so the note waits for no
// transaction of its own while there are others to ride along with.
const noteWithin = 20 * time.Millisecond

// note writes ACTIVE where it is missing, as soon as anything is written.
func (c *Core) note() {
	switch {
	case len(c.unnoted) == 0:
		c.noteAt = time.Time{}
		return
	case c.noteAt.IsZero():
		c.noteAt = c.now.Add(noteWithin)
	}
	if len(c.pending) == 0 && c.now.Before(c.noteAt) {
		return
	}
	all := slices.SortedFunc(maps.Values(c.unnoted), func(a, b *version) int { return c.compare(a.r, b.r) })
	for _, v := range all[:min(len(all), maxDerived)] {
		c.subject = v.r.Ref()
		c.active(v)
	}
	c.subject = model.Ref{}
	if len(c.unnoted) == 0 {
		c.noteAt = time.Time{}
	}
}

// active notes that all of a version was dispatched.
func (c *Core) active(v *version) { c.put(c.assigned(v), model.EventReservationAssigned) }

// assigned answers the record of a version all of which was dispatched.
func (c *Core) assigned(v *version) *model.Reservation {
	next := c.edit(v.r)
	next.State, next.Reason = model.Active, ""
	if next.Round == 0 { // what later rounds have to tell is kept
		next.Message = ""
	}
	return next
}

func (c *Core) put(r *model.Reservation, kind model.EventKind, expect ...model.Expect) {
	c.decide(model.Effect{
		Puts: []model.Record{r}, Expect: expect,
		Events: []model.JobEvent{c.event(kind, r)},
	})
}

// toTail queues what the assigner refused again, behind everything: as another
// version, so that the refused lease belongs to one that has ended, and is
// swept. The wait that counts for its queueTimeout goes on.
func (c *Core) toTail(v *version) {
	old := c.end(v.r, model.Replaced, fault.ReasonDispatchRejected, "the lease was refused; queued again at the tail")
	next := c.edit(v.r)
	next.UID, next.Epoch = c.newUID(), 0
	next.Spec.Priority = c.config.Order.Refused(v.r)
	next.Place, next.PlaceEpoch = c.newPlace(), 0
	c.decide(model.Effect{
		Puts:   []model.Record{old, next},
		Expect: []model.Expect{noTask(old.UID)},
		Events: []model.JobEvent{
			c.event(model.EventReservationReplaced, old),
			c.event(model.EventReservationQueued, next),
		},
	})
}

// overdue expires what waited too long and forgets what ended long ago, with
// the job's stages when it was the last of the job.
func (c *Core) overdue(v *version) {
	if v.is(model.Queued) {
		c.put(c.end(v.r, model.Expired, fault.ReasonQueueTimeout, ""), model.EventReservationExpired, noTask(v.uid))
		return
	}
	var effect model.Effect
	if job := v.r.Key.Job; c.lastOf(job) && !c.holdsOf(job) {
		for key := range c.stageKeys.From(model.Key{Job: job}) {
			if key.Job != job {
				break
			}
			effect.Deletes = append(effect.Deletes, c.stages[key].Ref())
		}
	}
	for len(effect.Deletes) >= 2*effectReservations {
		c.decide(model.Effect{Deletes: effect.Deletes[:effectReservations]})
		effect.Deletes = effect.Deletes[effectReservations:]
	}
	effect.Deletes = append(effect.Deletes, v.r.Ref())
	c.decide(effect)
}
