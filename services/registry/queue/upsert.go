package queue

import (
	"fmt"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// maxRequests bounds the calls that a version remembers, the newest last.
const maxRequests = 32

// upsert decides by the table in doc.go.
func (c *Core) upsert(token uint64, u model.Upsert) {
	u = withDefaults(u)
	if err := Validate(u); err != nil {
		c.refuse(token, err)
		return
	}
	u.Fingerprint = callOf(u)
	if v, mark := c.remembered(u.Key, u.RequestID); v != nil {
		switch {
		case !repeats(mark.Call, u.Fingerprint):
			c.refuse(token, anotherCall(u.RequestID))
			return
		case mark.Change != model.ChangeUnset:
			c.replyUpserted(token, v.r, mark.Change)
			return
		}
	}
	if idle, ok := c.idle(u.Key, u.RequestID); ok {
		found := c.versions[idle.UID]
		switch {
		case !repeats(idle.Call, u.Fingerprint):
			c.refuse(token, anotherCall(u.RequestID))
			return
		case found != nil && found.r != nil:
			c.replyUpserted(token, found.r, model.Unchanged)
			return
		}
	}
	l := c.living(u.Key)
	if u.IfEpoch != 0 && (l.newest == nil || l.newest.r.Epoch != u.IfEpoch) {
		c.refuse(token, epochMismatch(u.Key, u.IfEpoch))
		return
	}
	if l.newest != nil && sameBody(u, l.newest.r) && l.asked(u) {
		c.keep(token, u, l)
		return
	}
	workers, err := c.workers(u, l)
	switch {
	case err != nil:
		c.refuse(token, err)
	case len(l.queued) > 0 && workers.Equal(l.queuedWorkers()) && l.queuedLike(u):
		c.keep(token, u, l)
	case len(workers) == 0 && len(l.queued) == 0:
		c.retarget(u, l)
		c.unchanged(token, u, l.newest.r)
	default:
		stage := c.stageAfter(u, workers)
		if err := c.bounded(u, workers, stage); err != nil {
			c.refuse(token, err)
			return
		}
		if err := c.admit(u, l, workers); err != nil {
			c.refuse(token, err)
			return
		}
		c.replace(token, u, l, workers, stage)
	}
}

// withDefaults fills in what a request may leave out.
func withDefaults(u model.Upsert) model.Upsert {
	if u.Key.Name == "" {
		u.Key.Name = model.MainName
	}
	u.Spec.Constraints.Resources = u.Spec.Constraints.Resources.WithSlots()
	setDefault(&u.Spec.MaxAttempts, model.DefaultAttempts)
	return u
}

// keep answers an upsert of the shape that is there: at most its priority
// changes, and only of what still waits.
func (c *Core) keep(token uint64, u model.Upsert, l living) {
	moving := slices.DeleteFunc(l.queued, func(v *version) bool { return u.Spec.Priority.Equal(v.r.Spec.Priority) })
	if len(moving) == 0 {
		c.unchanged(token, u, l.newest.r)
		return
	}
	if at := slices.Index(moving, l.newest); at >= 0 { // the last one is answered
		moving = append(slices.Delete(moving, at, at+1), l.newest)
	}
	var effect model.Effect
	var moved *model.Reservation
	for i, v := range moving {
		c.makeRoom(&effect)
		moved = c.edit(v.r)
		moved.Spec.Priority, moved.Spec.Labels = u.Spec.Priority, u.Spec.Labels
		if i == len(moving)-1 {
			remember(moved, model.RequestMark{ID: u.RequestID, Change: model.Reordered, Call: u.Fingerprint})
		}
		effect.Puts = append(effect.Puts, moved)
		effect.Events = append(effect.Events, c.event(model.EventReservationReordered, moved))
	}
	c.decide(effect)
	c.replyUpserted(token, moved, model.Reordered)
}

// unchanged answers an upsert that found what it asks for. The reservation's
// record stays as it is, so that cycles and dispatches under way stand.
func (c *Core) unchanged(token uint64, u model.Upsert, r *model.Reservation) {
	c.rememberIdle(u.Key, model.IdleRequest{ID: u.RequestID, UID: r.UID, Call: u.Fingerprint})
	c.replyUpserted(token, r, model.Unchanged)
}

// replace queues a version for workers, in place of what is queued, if anything,
// and stores what becomes of the stage, nil if it stays.
// Without workers only that ends. The last effect is the one of the upsert.
func (c *Core) replace(token uint64, u model.Upsert, l living, workers model.WorkerSet, stage *model.Stage) {
	change := model.ChangeReplaced
	if l.newest == nil {
		change = model.Created
	}
	mark := model.RequestMark{ID: u.RequestID, Change: change, Call: u.Fingerprint}
	effect := c.retargeted(u)
	for _, v := range l.queued {
		c.makeRoom(&effect)
		c.finish(&effect, v, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, "")
	}
	var next *model.Reservation
	if len(workers) == 0 {
		next = c.edit(l.others().r)
	} else {
		next = &model.Reservation{
			Key: u.Key, UID: c.newUID(), Spec: u.Spec, Workers: workers,
			State: model.Queued, CreatedAt: c.now, UpdatedAt: c.now, Trace: u.Trace,
		}
		c.takePlace(next, u, l)
		effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	}
	remember(next, mark)
	effect.Puts = append(effect.Puts, next)
	if stage != nil {
		effect.Puts = append(effect.Puts, stage)
	}
	c.decide(effect)
	c.replyUpserted(token, next, change)
}

// takePlace gives a version its place: that of what it replaces, the first of
// it, where it asks for no other executors and no more workers; or the tail.
func (c *Core) takePlace(next *model.Reservation, u model.Upsert, l living) {
	if len(l.queued) == 0 || !next.Workers.SubsetOf(l.queuedWorkers()) {
		next.Place = c.newPlace()
		return
	}
	first := l.queued[0].r
	for _, v := range l.queued {
		if !sameConstraints(u.Spec.Constraints, v.r.Spec.Constraints) {
			next.Place = c.newPlace()
			return
		}
		if c.compare(v.r, first) < 0 {
			first = v.r
		}
	}
	next.Place, next.PlaceEpoch = first.Place, c.placeEpoch(first)
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

// retarget stores the target size of an upsert that queues nothing: with the
// stage, and with the version that stands for the key, so that asking for the
// earlier one again is another request and lowers it.
func (c *Core) retarget(u model.Upsert, l living) {
	effect := c.retargeted(u)
	if v := l.newest; v.is(model.Active) && latestTarget(v.r) != u.Spec.TargetSize {
		next := c.edit(v.r)
		next.LatestTarget = &u.Spec.TargetSize
		effect.Puts = append(effect.Puts, next)
	}
	if stage := c.stageAfter(u, nil); stage != nil {
		effect.Puts = append(effect.Puts, stage)
	}
	if len(effect.Puts) > 0 {
		c.decide(effect)
	}
}

// retargeted begins the effect of an upsert by dropping what a lower target
// drops: every other queued reservation of the stage, and of the requeues those
// of worker indexes at or above it. Where those are many the first of them go in effects
// of their own; the upsert's is the last.
func (c *Core) retargeted(u model.Upsert) model.Effect {
	stage := c.stages[stageKey(u.Key)]
	if stage == nil || u.Spec.TargetSize == 0 || u.Spec.TargetSize >= stage.TargetSize {
		return model.Effect{}
	}
	var dropped []*version
	for key := range c.keys.From(stageKey(u.Key)) {
		if stageKey(key) != stageKey(u.Key) {
			break
		}
		other := c.living(key)
		if key != u.Key {
			dropped = append(dropped, other.queued...)
		}
		dropped = append(dropped, slices.DeleteFunc(other.requeues, func(v *version) bool {
			return firstIndex(v.r) < u.Spec.TargetSize || key == u.Key && len(v.named(u.Workers)) > 0
		})...)
	}
	message := fmt.Sprintf("the target size of the stage was lowered from %d to %d", stage.TargetSize, u.Spec.TargetSize)
	var effect model.Effect
	for _, v := range dropped {
		c.makeRoom(&effect)
		c.finish(&effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonTargetLowered, message)
	}
	return effect
}

// stageAfter is the stage's record after an upsert; nil if it stays.
func (c *Core) stageAfter(u model.Upsert, workers model.WorkerSet) *model.Stage {
	before := c.stages[stageKey(u.Key)]
	if before == nil {
		before = &model.Stage{Job: u.Key.Job, Stage: u.Key.Stage}
	}
	after := *before
	if u.Spec.TargetSize != 0 {
		after.TargetSize = u.Spec.TargetSize
	}
	after.Numbers = before.Numbers.Raise(workers)
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
		return Upserted{View: c.durableView(ref), Change: change}
	})
}
