package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// upsert decides on an upsert by the table in doc.go.
func (c *Core) upsert(token uint64, u model.Upsert) error {
	u.Fingerprint = request.Fingerprint(u)
	c.setTenants(u.Tenants)
	if repeated, err := c.repeatUpsert(token, u); repeated || err != nil {
		return err
	}
	l := c.living(u.Key)
	u, err := c.withDefaultAttributes(u, l)
	if err != nil {
		return err
	}
	if u.IfEpoch != 0 && (l.newest == nil || l.newest.r.Epoch != u.IfEpoch) {
		return epochMismatch(u.Key, u.IfEpoch)
	}
	if err := cmp.Or(checkCompletesWith(u, l), c.checkTarget(u, l)); err != nil {
		return err
	}
	var workers model.WorkerSet
	var changed request.Fields
	if l.newest == nil {
		workers, err = c.workersToQueue(u, l, false)
	} else {
		var kept bool
		if workers, changed, kept, err = c.upsertOver(token, u, l); kept {
			return err
		}
	}
	if err != nil {
		return err
	}
	if err := c.checkTimes(u); len(workers) > 0 && err != nil {
		return err
	}
	stage := c.stageAfter(u, workers)
	p := c.replacementFor(u, l, workers)
	stops := c.surplus(u, l, workers)
	err = cmp.Or(request.CheckSize(u.Spec, workers, &stage), request.CheckStored(p.stores(), &stage),
		c.admit(u, l, workers), c.checkShrink(u, stops))
	if err != nil {
		return err
	}
	dropsOwn := slices.ContainsFunc(c.dropped(u), func(r removal) bool { return r.v.r.Key == u.Key })
	if len(stops) > 0 || dropsOwn { // else one effect has all
		l, _ = c.shrink(u, l, workers)
		stage, p = c.stageAfter(u, workers), c.replacementFor(u, l, workers)
	}
	c.replace(token, u, l, p, stage, changed)
	return nil
}

// replacement is what an upsert puts in the place of queued versions.
type replacement struct {
	// kept remembers an upsert that queues no version; otherwise it is nil.
	kept *version
	// next is the version that it queues, or nil.
	next *model.Reservation
	// after has the living versions after the upsert, of which the newest is kept or next. It is not
	// set if the upsert begins a reservation.
	after living
	other otherRequest
}

// stores returns the record that stores the request.
func (p *replacement) stores() *model.Reservation {
	if p.next == nil {
		return p.kept.r
	}
	return p.next
}

// replacementFor returns the version that an upsert queues, or that remembers it if there are no workers to
// queue.
func (c *Core) replacementFor(u model.Upsert, l living, workers model.WorkerSet) replacement {
	p := replacement{after: living{started: l.started, requeues: l.requeues, done: l.done}}
	if len(workers) == 0 {
		p.kept = representative(slices.Concat(l.started, l.requeues))
		p.after.newest = p.kept
	} else {
		p.next = &model.Reservation{
			Key: u.Key, UID: c.newUID(), Spec: u.Spec, Workers: workers,
			State: model.Queued, CreatedAt: c.now, UpdatedAt: c.now, Trace: u.Trace, NotBefore: u.Spec.NotBefore,
			LifetimeEnd: request.LifetimeEnd(u.Spec.Lifetime, c.now),
		}
	}
	if l.newest == nil { // it queues all that is requested
		return p
	}
	if p.next != nil {
		p.next.First = c.first(l.newest.r)
		p.after.newest = &version{r: p.next}
		p.after.queued = []*version{p.after.newest}
	}
	p.other = otherRequest{c.otherWorkers(p.after, u), c.requestedWorkers(l.newest.r, l.queued...)}
	if stored := p.other.storedIn(wantedWorkers{}, true); p.next != nil && stored.isSet() {
		p.next.Latest = &model.Latest{Spec: u.Spec, Count: stored.count, Workers: stored.workers, At: c.now,
			Adds: stored.workers.Equal(p.next.Workers)}
	}
	return p
}

// upsertOver answers an upsert over living versions if it queues no worker, and reports whether it
// does. Otherwise it returns the workers to queue and the fields that the upsert changes.
func (c *Core) upsertOver(token uint64, u model.Upsert, l living) (workers model.WorkerSet, changed request.Fields,
	kept bool, err error) {
	has := c.hasWorkersOf(l, u)
	known := has || c.repeatsAll(u, l)
	if known && request.SameBody(&u, l.newest.r) {
		return nil, 0, true, c.keep(token, &u, l, false)
	}
	workers, err = c.workersToQueue(u, l, known)
	switch {
	case err != nil:
		return nil, 0, false, err
	case len(l.queued) > 0 && workers.Equal(l.queuedWorkers()) && l.allQueuedLike(&u):
		return nil, 0, true, c.keep(token, &u, l, false)
	case len(workers) == 0 && len(l.queued) == 0:
		return nil, 0, true, c.keep(token, &u, l, true)
	}
	changed = request.Differences(request.SpecFor(&u, l.newest.r), l.newest.r.Requested()) &^ request.FieldTargetSize
	if u.Spec.TargetSize != request.LatestTarget(l.newest.r) {
		changed |= request.FieldTargetSize
	}
	if !has {
		changed |= request.WorkersOf(u)
	}
	return workers, changed, false, nil
}

// withDefaultAttributes returns an upsert with the attributes that it does not name. If the
// version that represents the key has the same constraints, as requested or with its
// defaults, they are those of that version. So neither a repeat nor the answer to a read
// changes anything after the defaults have changed. Otherwise they are the defaults of this
// core.
func (c *Core) withDefaultAttributes(u model.Upsert, l living) (model.Upsert, error) {
	defaults := c.config.DefaultAttributes
	var recorded constraint.Constraints
	if l.newest != nil {
		recorded = l.newest.r.Requested().Constraints
	}
	if len(defaults) == 0 && len(recorded.Defaults) == 0 {
		return u, nil
	}
	requested := u.Spec.Constraints
	if l.newest != nil && (request.SameConstraints(requested, recorded.Requested()) ||
		request.SameConstraints(requested, recorded)) {
		defaults = recorded.DefaultValues()
	}
	u.Spec.Constraints = requested.WithDefaults(defaults)
	if n := len(u.Spec.Constraints.Attributes); n > model.MaxAttributes {
		return u, fault.BadField(fault.ReasonTooLarge, "constraints.attributes",
			"must be at most %d entries, got %d with the default attributes of the cluster", model.MaxAttributes, n)
	}
	return u, nil
}

func epochMismatch(key model.Key, epoch int64) error {
	return fault.New(fault.Conflict, fault.ReasonEpochMismatch, "%s has no living version of epoch %d", key, epoch)
}

// repeatUpsert replies to an upsert if it repeats an earlier one, and reports whether it
// does. It returns an error if the ID was used for another call.
func (c *Core) repeatUpsert(token uint64, u model.Upsert) (repeated bool, err error) {
	v, mark := c.remembered(u.Key, u.RequestID)
	switch {
	case v != nil && mark.Call != u.Fingerprint:
		return false, request.OtherUnderID(u.RequestID)
	case mark.Change != model.ChangeUnset:
		c.replyUpserted(token, v.r, mark.Change, request.Fields(mark.Fields))
		return true, nil
	}
	idle, known := c.idle(u.Key, u.RequestID)
	found := c.versions[idle.UID]
	switch {
	case known && idle.Call != u.Fingerprint:
		return false, request.OtherUnderID(u.RequestID)
	case found != nil && found.r != nil:
		c.replyUpserted(token, found.r, model.Unchanged, 0)
		return true, nil
	}
	return false, nil
}

// repeatsWorkers reports whether an upsert requests the workers of the latest request, which are
// not those of the reservation.
func (c *Core) repeatsWorkers(u model.Upsert, l living) bool {
	latest := c.requestedWorkers(l.newest.r)
	return latest.isSet() && latest.equal(wantedWorkers{u.Count, model.WorkerSetOf(u.Workers)})
}

// update is what an upsert that queues no worker stores in one version.
type update struct {
	v    *version
	next *model.Reservation
	// changed has the fields in which the upsert differs from the latest request of the version.
	changed request.Fields
}

// repeatsAll reports whether an upsert requests the workers of the latest request, and none of those that
// it requests by index was cancelled since. Like a repeat for all workers, it queues no ended worker again.
// A list that names workers by number never requests others.
func (c *Core) repeatsAll(u model.Upsert, l living) bool {
	if !c.repeatsWorkers(u, l) {
		return false
	}
	had := unionOf(c.reservationOf(u.Key).notCancelled())
	for index := range u.Count {
		if _, has := had.Number(index); !has {
			return false
		}
	}
	return !slices.ContainsFunc(u.Workers, func(w model.WorkerID) bool {
		_, has := had.Number(w.Index)
		return w.Number == request.NextNumber && !has
	})
}

// updates returns what an upsert changes in the living versions. The version that represents the
// key comes last.
func (c *Core) updates(u *model.Upsert, l living) (updates []update) {
	other := otherRequest{c.otherWorkers(l, *u), c.requestedWorkers(l.newest.r)}
	for _, v := range l.all() {
		if v == l.newest {
			continue
		}
		if next, changed := c.updated(v, u, other, false); changed != 0 {
			updates = append(updates, update{v, next, changed})
		}
	}
	if next, changed := c.updated(l.newest, u, other, true); changed != 0 {
		updates = append(updates, update{l.newest, next, changed})
	}
	return updates
}

// keep answers an upsert that queues no worker. It stores the request in all living versions, so
// that those take it which derive from them later: requeues and rounds. retargets is set if the
// target size of the upsert replaces that of the stage.
func (c *Core) keep(token uint64, u *model.Upsert, l living, retargets bool) error {
	updates := c.updates(u, l)
	err := c.admitUpdate(*u, updates)
	if retargets {
		err = cmp.Or(err, c.checkShrink(*u, c.surplus(*u, l, nil)))
	}
	if err != nil {
		return err
	}
	if len(updates) > 0 && len(l.queued) > 0 && u.Spec.ExpireAt.After(c.now) {
		if err := checkBegin(u.Spec); err != nil { // an expiry in the past ends the key
			return err
		}
	}
	var changed request.Fields
	if retargets {
		if l, changed = c.shrink(*u, l, nil); changed != 0 {
			if updates = c.updates(u, l); len(updates) == 0 {
				updates = []update{{v: l.newest, next: c.edit(l.newest.r)}} // it remembers the request
			}
		}
	}
	if len(updates) == 0 {
		c.replyUnchanged(token, *u, l.newest.r)
		return nil
	}
	reorders := func(up update) bool {
		return up.changed.Has(request.FieldPriority) && (slices.Contains(l.queued, up.v) || up.v.isRound())
	}
	moved := false
	for _, up := range updates {
		changed |= up.changed
		moved = moved || reorders(up)
	}
	change := changeFor(changed, moved)
	mark := model.RequestMark{ID: u.RequestID, Change: change, Call: u.Fingerprint, Fields: uint64(changed)}
	var last *model.Reservation
	changeAll(c, updates, mark, func(effect *model.Effect, up update) *model.Reservation {
		if reorders(up) {
			effect.Events = append(effect.Events, c.event(model.EventReservationReordered, up.next))
		}
		if up.v == l.newest && up.changed&(request.FieldCount|request.FieldWorkers) != 0 {
			c.dropLists(effect, l)
		}
		last = c.store(effect, l, up.v, up.next)
		return last
	})
	c.replyUpserted(token, last, change, changed)
	return nil
}

// changeFor returns the effect of an upsert that queues no worker and changed some fields. moved
// reports whether a queued version has another priority.
func changeFor(changed request.Fields, moved bool) model.Change {
	switch {
	case changed&^(request.FieldPriority|request.FieldLabels|request.FieldExpireAt) != 0:
		return model.Updated
	case changed.Has(request.FieldExpireAt):
		return model.Extended
	case moved:
		return model.Reordered
	}
	return model.Updated
}

// checkTimes rejects an upsert that would queue workers which expire at once, or before
// they may start.
func (c *Core) checkTimes(u model.Upsert) error {
	at, begin := u.Spec.ExpireAt, u.Spec.NotBefore
	if !at.IsZero() && !at.After(c.now) {
		return fault.BadField(fault.ReasonInvalid, "expireAt", "must be later than now, got %s",
			at.UTC().Format(time.RFC3339Nano))
	}
	if life := u.Spec.Lifetime; life.From == model.FromCreated && !begin.IsZero() && !c.now.Add(life.For).After(begin) {
		return fault.BadField(fault.ReasonInvalid, "lifetime.for",
			"must end later than notBefore, which is in %v, got %v from CREATED", begin.Sub(c.now), life.For)
	}
	return checkBegin(u.Spec)
}

// checkBegin rejects an expiry before which no worker may start.
func checkBegin(s model.Spec) error {
	if !s.ExpireAt.IsZero() && !s.NotBefore.IsZero() && !s.ExpireAt.After(s.NotBefore) {
		return fault.BadField(fault.ReasonInvalid, "expireAt", "must be later than notBefore, which is %s, got %s",
			s.NotBefore.UTC().Format(time.RFC3339Nano), s.ExpireAt.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// replyUnchanged answers an upsert that changes nothing. The record of the reservation
// does not change either, so cycles and dispatches in flight remain valid.
func (c *Core) replyUnchanged(token uint64, u model.Upsert, r *model.Reservation) {
	c.rememberIdle(u.Key, model.IdleRequest{ID: u.RequestID, UID: r.UID, Call: u.Fingerprint})
	c.replyUpserted(token, r, model.Unchanged, 0)
}

// replace queues a version with workers in place of the queued versions, if any, stores the
// request in all other living versions, and stores the stage. Without workers it only ends the
// queued versions. The last effect has the record that the upsert made or changed.
func (c *Core) replace(token uint64, u model.Upsert, l living, p replacement, stage model.Stage,
	changed request.Fields) {
	change := model.ChangeReplaced
	if l.newest == nil {
		change = model.Created
	}
	effect := c.lowerTarget(u)
	if l.newest != nil {
		if !p.other.wants.equal(p.other.has) {
			c.dropLists(&effect, l)
		}
		c.storeInOthers(&effect, u, l, p.kept, p.other)
	}
	next := p.next
	for _, v := range l.queued {
		c.makeRoom(&effect)
		c.finish(&effect, v, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, "")
	}
	if p.kept != nil {
		next = c.storeInKept(&effect, u, l, p.after, p.other)
	} else {
		next.Split = slices.ContainsFunc(l.queued, func(v *version) bool { return v.r.Split })
		// A queueTimeout bounds the wait until the first grant, which these workers have had, unless it is new.
		next.Granted = next.Workers.SubsetOf(union(slices.DeleteFunc(slices.Clone(l.queued), func(v *version) bool {
			return v.r.AwaitsFirstGrant() || v.r.Requested().QueueTimeout != u.Spec.QueueTimeout
		}), func(v *version) model.WorkerSet { return v.r.Workers }))
		c.takePlace(next, l)
		effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
		effect.Puts = append(effect.Puts, next)
	}
	remember(next, model.RequestMark{ID: u.RequestID, Change: change, Call: u.Fingerprint, Fields: uint64(changed)})
	c.putStage(&effect, stage)
	c.decide(effect)
	c.replyUpserted(token, next, change, changed)
}

// storeInOthers adds what an upsert stores in the living versions that it does not replace to an
// effect, except for one of them.
func (c *Core) storeInOthers(effect *model.Effect, u model.Upsert, l living, kept *version, other otherRequest) {
	for _, v := range slices.Concat(l.started, l.requeues) {
		if v == kept || !v.alive() {
			continue
		}
		if stored, fields := c.updated(v, &u, other, false); fields != 0 {
			c.makeRoom(effect)
			c.store(effect, l, v, stored)
		}
	}
}

// storeInKept adds what an upsert that only ends queued versions stores in the version that
// represents the key after it, and returns the record.
func (c *Core) storeInKept(effect *model.Effect, u model.Upsert, l, after living,
	other otherRequest) *model.Reservation {
	stored, fields := c.updated(after.newest, &u, other, true)
	if fields == 0 {
		stored = c.edit(after.newest.r)
	}
	return c.store(effect, l, after.newest, stored)
}

// takePlace gives a version the first place of the queued versions that it replaces, if
// it has their constraints and only workers of theirs. Otherwise the version goes to the
// tail.
func (c *Core) takePlace(next *model.Reservation, l living) {
	inherits := len(l.queued) > 0 && next.Workers.SubsetOf(l.queuedWorkers()) &&
		!slices.ContainsFunc(l.queued, func(v *version) bool {
			return !request.SameConstraints(next.Spec.Constraints, v.r.Spec.Constraints)
		})
	if !inherits {
		next.Place = c.newPlace()
		return
	}
	first := slices.MinFunc(l.queued, func(a, b *version) int { return c.scheduler.Compare(a.r, b.r) })
	next.Place, next.PlaceEpoch, next.RefusedEpoch = first.r.Place, c.placeEpoch(first.r), first.r.RefusedEpoch
	if !next.Spec.Priority.Equal(first.r.Spec.Priority) {
		takeOrder(next)
	}
}

// beforeRefusal returns a version at the place that it had before its dispatch was refused.
func (c *Core) beforeRefusal(r *model.Reservation) *model.Reservation {
	if r.RefusedEpoch == 0 {
		return r
	}
	before := c.edit(r)
	takeOrder(before)
	return before
}

// takeOrder makes a version that waits at the tail because its dispatch was refused take the place that
// another priority gives it.
func takeOrder(next *model.Reservation) {
	if next.RefusedEpoch != 0 {
		next.PlaceEpoch, next.RefusedEpoch = next.RefusedEpoch, 0
	}
}

// placeEpoch returns the epoch that orders a version in the place of r. If r is not
// durable, it is ordered as if accepted at the current revision: after everything that is
// durable.
func (c *Core) placeEpoch(r *model.Reservation) int64 {
	return cmp.Or(r.PlaceEpoch, r.Epoch, c.revision)
}

// retarget stores the target size of an upsert that queues nothing in the record of the stage,
// and reports whether it changed anything. keep stores it in the version that represents the key, so
// that a later upsert with the earlier target size is another request.
func (c *Core) retarget(u model.Upsert) bool {
	effect := c.lowerTarget(u)
	c.putStage(&effect, c.stageAfter(u, nil))
	if len(effect.Puts) == 0 {
		return false
	}
	c.decide(effect)
	return true
}

// lowerTarget begins the effect of an upsert, in which it cancels the versions that a lower target
// size drops. If there are many, the first are in effects of their own.
func (c *Core) lowerTarget(u model.Upsert) (effect model.Effect) {
	message := fmt.Sprintf("the target size of the stage was lowered from %d to %d", c.stage(u.Key).TargetSize,
		u.Spec.TargetSize)
	for _, r := range c.dropped(u) {
		c.makeRoom(&effect)
		if r.workers.Len() < r.v.r.Workers.Len() {
			c.removeOne(&effect, r)
			continue
		}
		c.finish(&effect, r.v, model.Cancelled, model.EventReservationCancelled, fault.ReasonTargetLowered, message)
	}
	return effect
}

// dropped returns what an upsert drops that lowers the target size: the reservations that are queued
// under the stage's other names, and of requeues and rounds the worker indexes at or above the target size.
// A worker of this key that the upsert names stays.
func (c *Core) dropped(u model.Upsert) (dropped []removal) {
	if u.Spec.TargetSize == 0 || u.Spec.TargetSize >= c.stage(u.Key).TargetSize {
		return nil
	}
	for key := range within(&c.keys, stageKey(u.Key), model.Key{}) {
		other := c.living(key)
		if key != u.Key {
			for _, v := range other.queued {
				dropped = append(dropped, removal{v: v, workers: v.r.Workers})
			}
		}
		for _, v := range slices.Concat(other.started, other.requeues) {
			if v.r.Origin != model.OriginRequeue && !v.isRound() || v.started() {
				continue
			}
			workers := model.WorkerSetOf(slices.DeleteFunc(v.r.Workers.List(),
				func(id model.WorkerID) bool { return id.Index < u.Spec.TargetSize }))
			if key == u.Key {
				workers = without(workers, c.named(v, u.Workers))
			}
			if len(workers) > 0 {
				dropped = append(dropped, removal{v: v, workers: workers})
			}
		}
	}
	return dropped
}

// stageAfter returns the record of the stage after an upsert.
func (c *Core) stageAfter(u model.Upsert, workers model.WorkerSet) model.Stage {
	after := c.withNumbers(u.Key, workers)
	after.TargetSize = cmp.Or(u.Spec.TargetSize, after.TargetSize)
	return *after
}

// putStage adds the record of a stage to an effect if the record changes.
func (c *Core) putStage(effect *model.Effect, after model.Stage) {
	before := c.stage(model.Key{Job: after.Job, Stage: after.Stage})
	if after.TargetSize != before.TargetSize || !after.Numbers.Equal(before.Numbers) {
		effect.Puts = append(effect.Puts, &after)
	}
}

// replyUpserted answers an upsert with the version that it queued, or else with the reservation.
func (c *Core) replyUpserted(token uint64, r *model.Reservation, change model.Change, changed request.Fields) {
	ref, view := r.Ref(), c.durableReservation
	if change == model.Created || change == model.ChangeReplaced {
		view = c.durableView
	}
	c.reply(token, func() any {
		c.counts.Upserts[change]++
		return Upserted{View: c.latestView(view(ref), changed, false), Change: change}
	})
}
