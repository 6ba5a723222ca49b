package queue

import (
	"fmt"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// An effect touches at most this many reservations: with an event and a
// compare each it stays below the 120 operations of a transaction.
const effectReservations = 50

// maxRequests bounds the calls that a version remembers, the newest last.
const maxRequests = 32

// living is what of a key has not ended and is not being ended.
type living struct {
	// queued is the version that waits or holds a lease nobody has taken.
	queued *version
	// started are the versions the assigner has.
	started []*version
	// newest is the newest of them.
	newest *version
}

func (c *Core) living(key model.Key) living {
	var l living
	for _, v := range c.byKey[key] {
		switch {
		case v.started():
			l.started = append(l.started, v)
		case v.is(model.Queued):
			l.queued = v
		default:
			continue
		}
		l.newest = v
	}
	return l
}

// upsert decides by the table in doc.go.
func (c *Core) upsert(token uint64, u Upsert) {
	u = u.withDefaults()
	if err := Validate(u); err != nil {
		c.refuse(token, err)
		return
	}
	if v, mark := c.remembered(u.Key, u.RequestID); v != nil && mark.Change != model.ChangeUnset {
		c.replyUpserted(token, v.r, mark.Change)
		return
	}
	if found, ok := c.idle(u.Key, u.RequestID); ok && found != nil {
		c.replyUpserted(token, found.r, model.Unchanged)
		return
	}
	l := c.living(u.Key)
	if u.IfEpoch != 0 && (l.newest == nil || l.newest.r.Epoch != u.IfEpoch) {
		c.refuse(token, epochMismatch(u.Key, u.IfEpoch))
		return
	}
	if l.newest != nil && sameShape(u.Spec, l.newest.r.Spec) && l.asked(u) {
		c.keep(token, u, l)
		return
	}
	seats, err := c.seats(u, l)
	switch {
	case err != nil:
		c.refuse(token, err)
	case l.queued != nil && seats.Equal(l.queued.r.Seats) && sameShape(u.Spec, l.queued.r.Spec):
		c.keep(token, u, l)
	case len(seats) == 0 && l.queued == nil:
		c.retarget(u, l)
		c.unchanged(token, u, l.newest.r)
	default:
		c.replace(token, u, l, seats)
	}
}

// withDefaults fills in what a request may leave out.
func (u Upsert) withDefaults() Upsert {
	if u.Key.Name == "" {
		u.Key.Name = model.MainName
	}
	u.Spec.Constraints.Resources = u.Spec.Constraints.Resources.WithSlots()
	setDefault(&u.Spec.MaxAttempts, model.DefaultAttempts)
	return u
}

// keep answers an upsert of the shape that is there: at most its priority
// changes, and only of what still waits.
func (c *Core) keep(token uint64, u Upsert, l living) {
	r := l.newest.r
	if l.queued == nil || l.queued != l.newest || u.Spec.Priority.Equal(r.Spec.Priority) {
		c.unchanged(token, u, r)
		return
	}
	moved := c.edit(r)
	moved.Spec.Priority, moved.Spec.Labels = u.Spec.Priority, u.Spec.Labels
	remember(moved, model.RequestMark{ID: u.RequestID, Change: model.Reordered})
	c.decide(model.Effect{
		Puts:   []model.Record{moved},
		Events: []model.JobEvent{c.event(model.EventReservationReordered, moved)},
	})
	c.replyUpserted(token, moved, model.Reordered)
}

// unchanged answers an upsert that found what it asks for. The reservation's
// record stays as it is, so that passes and hand-overs under way stand.
func (c *Core) unchanged(token uint64, u Upsert, r *model.Reservation) {
	c.rememberIdle(u.Key, model.IdleRequest{ID: u.RequestID, UID: r.UID})
	c.replyUpserted(token, r, model.Unchanged)
}

// replace queues a version for seats, in place of the one that is queued, if
// any. Without seats only the queued version ends.
func (c *Core) replace(token uint64, u Upsert, l living, seats model.Seats) {
	change := model.ChangeReplaced
	if l.newest == nil {
		change = model.Created
	}
	mark := model.RequestMark{ID: u.RequestID, Change: change}
	effect := c.retargeted(u)
	var old *model.Reservation
	if l.queued != nil {
		old = c.finish(&effect, l.queued, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, "")
	}
	if len(seats) == 0 {
		newest := c.edit(l.started[len(l.started)-1].r)
		remember(newest, mark)
		effect.Puts = append(effect.Puts, newest)
		if stage := c.stageAfter(u, nil); stage != nil {
			effect.Puts = append(effect.Puts, stage)
		}
		c.decide(effect)
		c.replyUpserted(token, newest, change)
		return
	}
	next := &model.Reservation{
		Key: u.Key, UID: c.newUID(), Spec: u.Spec, Seats: seats,
		State: model.Queued, CreatedAt: c.now, UpdatedAt: c.now,
	}
	remember(next, mark)
	if old != nil && sameConstraints(u.Spec.Constraints, old.Spec.Constraints) && seats.SubsetOf(old.Seats) {
		next.Place, next.PlaceEpoch = old.Place, c.placeEpoch(old)
	} else {
		next.Place = c.newPlace()
	}
	effect.Puts = append(effect.Puts, next)
	if stage := c.stageAfter(u, seats); stage != nil {
		effect.Puts = append(effect.Puts, stage)
	}
	effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	c.decide(effect)
	c.replyUpserted(token, next, change)
}

// placeEpoch is the epoch that a version taking r's place orders by. One that
// is not durable yet will be accepted after everything that is.
func (c *Core) placeEpoch(r *model.Reservation) int64 {
	switch {
	case r.PlaceEpoch != 0:
		return r.PlaceEpoch
	case r.Epoch != 0:
		return r.Epoch
	}
	return c.revision
}

// retarget stores the target size of an upsert that starts nothing.
func (c *Core) retarget(u Upsert, l living) {
	if u.Spec.TargetSize == l.newest.r.Spec.TargetSize {
		return
	}
	effect := c.retargeted(u)
	if stage := c.stageAfter(u, nil); stage != nil {
		effect.Puts = append(effect.Puts, stage)
		c.decide(effect)
	}
}

// retargeted begins the effect of an upsert by dropping what a lower target
// drops: every other queued reservation of the stage. Where those are many the
// first of them go in effects of their own; the upsert's is the last.
func (c *Core) retargeted(u Upsert) model.Effect {
	stage := c.stages[stageKey(u.Key)]
	if stage == nil || u.Spec.TargetSize == 0 || u.Spec.TargetSize >= stage.TargetSize {
		return model.Effect{}
	}
	var others []*version
	for key := range c.keys.from(c.keys.rank(stageKey(u.Key))) {
		if stageKey(key) != stageKey(u.Key) {
			break
		}
		if other := c.living(key).queued; other != nil && key != u.Key {
			others = append(others, other)
		}
	}
	message := fmt.Sprintf("the target size of the stage was lowered from %d to %d", stage.TargetSize, u.Spec.TargetSize)
	var effect model.Effect
	for _, other := range others {
		if len(effect.Puts) == effectReservations {
			c.decide(effect)
			effect = model.Effect{}
		}
		c.finish(&effect, other, model.Cancelled, model.EventReservationCancelled, fault.ReasonTargetLowered, message)
	}
	return effect
}

// stageAfter is the stage's record after an upsert; nil if it stays.
func (c *Core) stageAfter(u Upsert, seats model.Seats) *model.Stage {
	before := c.stages[stageKey(u.Key)]
	if before == nil {
		before = &model.Stage{Job: u.Key.Job, Stage: u.Key.Stage}
	}
	after := *before
	if u.Spec.TargetSize != 0 {
		after.TargetSize = u.Spec.TargetSize
	}
	after.Numbers = before.Numbers.Raise(seats)
	if after.TargetSize == before.TargetSize && after.Numbers.Equal(before.Numbers) {
		return nil
	}
	return &after
}

func stageKey(key model.Key) model.Key { return model.Key{Job: key.Job, Stage: key.Stage} }

func (c *Core) replyUpserted(token uint64, r *model.Reservation, change model.Change) {
	ref := r.Ref()
	c.reply(token, func() any {
		c.counts.Upserts[change]++
		return Upserted{Reservation: c.durableReservation(ref), Change: change}
	})
}
