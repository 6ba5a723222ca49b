package queue

import (
	"fmt"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// cancel ends every living version of a key.
func (c *Core) cancel(token uint64, r request.Cancel) error {
	versions := c.byKey[r.Key]
	count, err := c.unlessRepeated(r, r.RequestID, func(mark model.RequestMark) (int, error) {
		if r.IfEpoch != 0 {
			isRunning := func(v *version) bool { return !v.r.State.Terminal() }
			of := c.ofEpoch(versions, r.IfEpoch)
			if slices.ContainsFunc(versions, isRunning) && !slices.ContainsFunc(of, isRunning) {
				return 0, epochMismatch(r.Key, r.IfEpoch)
			}
			versions = of
		}
		changed := c.cancellable(versions, r.Grace)
		if len(changed) == 0 {
			c.rememberIdle(r.Key, model.IdleRequest{ID: mark.ID, Call: mark.Call})
		}
		return c.cancelAll(mark, changed, r.Grace), nil
	})
	if err != nil {
		return err
	}
	c.replyCancelled(token, versions, Cancelled{Count: count, Unknown: count == 0 && !c.knows(r.Key)})
	return nil
}

// knows reports whether a scope names something that is stored: a version, living or ended, or the
// record of a stage, which outlives its versions. A name in a stage that is not the default name
// requires a version.
func (c *Core) knows(of model.Key) bool {
	for range within(&c.keys, of, model.Key{}) {
		return true
	}
	for key := range c.stages {
		if key.Job == of.Job && (of.Stage == "" || key.Stage == of.Stage) && (of.Name == "" || of.Name == model.MainName) {
			return true
		}
	}
	return false
}

// knowsWorkers reports whether a stage has used one of the worker IDs of a call.
func (c *Core) knowsWorkers(r request.CancelWorkers) bool {
	stage := c.stages[request.Scope(r)]
	return stage != nil && slices.ContainsFunc(r.Workers, func(w model.WorkerID) bool {
		number, used := stage.Numbers.Number(w.Index)
		return used && w.Number <= number
	})
}

// unlessRepeated returns how many versions or workers a call cancels. If an earlier call
// made the same request, it returns the count of that call. Otherwise it calls act.
func (c *Core) unlessRepeated(r any, id string, act func(model.RequestMark) (int, error)) (count int, err error) {
	mark := model.RequestMark{ID: id, Call: request.Fingerprint(r)}
	count, repeated, err := c.earlier(request.Scope(r), mark)
	if err != nil || repeated {
		return count, err
	}
	return act(mark)
}

// ofEpoch returns the version of an epoch and its descendants: its parts, the requeues
// of its workers and the rounds that continue it. The versions must be ordered oldest first.
func (c *Core) ofEpoch(versions []*version, epoch int64) []*version {
	var of []*version
	for _, v := range versions {
		if v.r.Epoch == epoch || slices.Contains(v.r.Continues, epoch) ||
			slices.ContainsFunc(of, func(from *version) bool { return c.descends(v, from) }) {
			of = append(of, v)
		}
	}
	return of
}

// cancelJob ends every living version of a job.
func (c *Core) cancelJob(token uint64, r request.CancelJob) error {
	versions := c.versionsOf(request.Scope(r))
	count, err := c.unlessRepeated(r, r.RequestID, func(mark model.RequestMark) (int, error) {
		return c.cancelAll(mark, c.cancellable(versions, r.Grace), r.Grace), nil
	})
	if err != nil {
		return err
	}
	c.replyCancelled(token, versions, Cancelled{Count: count, Unknown: count == 0 && !c.knows(request.Scope(r))})
	return nil
}

// cancellable returns the versions among some that a cancel changes: those that live, and those
// whose stop is under way and that the grace makes shorter.
func (c *Core) cancellable(versions []*version, grace *time.Duration) []*version {
	return slices.DeleteFunc(slices.Clone(versions), func(v *version) bool {
		return !v.alive() && (grace == nil || !v.is(model.Cancelling) || !v.r.Shortens(*grace))
	})
}

// cancelAll cancels versions that cancellable has returned, and returns their number.
func (c *Core) cancelAll(mark model.RequestMark, versions []*version, grace *time.Duration) int {
	mark.Cancelled = int32(len(versions))
	changeAll(c, versions, mark, func(effect *model.Effect, v *version) *model.Reservation {
		if v.is(model.Cancelling) {
			next := c.edit(v.r)
			next.StopGraces = v.r.WithStopGrace(*grace)
			effect.Puts = append(effect.Puts, next)
			return next
		}
		next := c.cancelOne(effect, v)
		if grace != nil && next.State == model.Cancelling {
			next.StopGraces = v.r.WithStopGrace(*grace)
		}
		return next
	})
	return len(versions)
}

// cancelOne adds the cancel of a version to an effect. The version ends at once if the
// assigner has no task for it. Otherwise it becomes CANCELLING.
func (c *Core) cancelOne(effect *model.Effect, v *version) *model.Reservation {
	if !v.started() {
		return c.finish(effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
	}
	return c.stopStarted(effect, v, fault.ReasonCancelled)
}

// stopStarted adds to an effect that a started version becomes CANCELLING for a reason. The
// assigner then stops its workers.
func (c *Core) stopStarted(effect *model.Effect, v *version, reason fault.Reason) *model.Reservation {
	if v.dispatched() { // the event for ACTIVE was not emitted yet
		effect.Events = append(effect.Events, c.event(model.EventReservationAssigned, c.activated(v)))
	}
	next := c.edit(v.r)
	next.State, next.Reason = model.Cancelling, reason
	effect.Puts = append(effect.Puts, next)
	return next
}

// flush cancels queued versions. A held version is in no queue.
func (c *Core) flush(token uint64, r request.Flush) error {
	count, err := c.unlessRepeated(r, r.RequestID, func(mark model.RequestMark) (int, error) {
		queued := slices.DeleteFunc(c.versionsOf(request.Scope(r)), func(v *version) bool {
			return !v.is(model.Queued) || v.header != nil || v.accepted || v.isHeld() ||
				r.Group != "" && (v.isDelayed() || v.entry.GroupID(v.r) != r.Group)
		})
		message := "an operator flushed the queue of its group"
		if r.Job != "" {
			message = "an operator flushed the queued reservations of its job"
		}
		mark.Cancelled = int32(len(queued))
		changeAll(c, queued, mark, func(effect *model.Effect, v *version) *model.Reservation {
			return c.finish(effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonFlushed, message)
		})
		return len(queued), nil
	})
	if err != nil {
		return err
	}
	known := count > 0 || r.Group == "" && c.knows(request.Scope(r)) ||
		r.Group != "" && slices.ContainsFunc(c.versionsOf(model.Key{}), func(v *version) bool {
			return v.r != nil && v.entry.GroupID(v.r) == r.Group
		})
	c.reply(token, func() any { return Cancelled{Count: count, Unknown: !known} })
	return nil
}

// removal holds the workers that a call removes from one version. hastened has those that get
// less time to end, which may have been removed before.
type removal struct {
	v                 *version
	workers, hastened model.WorkerSet
	grace             time.Duration
}

// cancelWorkers removes workers. A version that was not dispatched is replaced in its
// place by a version without these workers. In a dispatched version these workers become
// unwanted, and the assigner evicts them.
func (c *Core) cancelWorkers(token uint64, r request.CancelWorkers) error {
	var waits []wait
	var removals []removal
	for _, v := range c.versionsOf(request.Scope(r)) {
		workers := c.named(v, r.Workers)
		if len(workers) == 0 {
			continue
		}
		waits = append(waits, wait{v: v, workers: workers})
		is := removal{v: v, workers: c.removable(v, workers)}
		if r.Grace != nil {
			is.grace, is.hastened = *r.Grace, c.hastened(v, *r.Grace, workers)
		}
		if len(is.workers)+len(is.hastened) > 0 {
			removals = append(removals, is)
		}
	}
	count, err := c.unlessRepeated(r, r.RequestID, func(mark model.RequestMark) (count int, err error) {
		if err := c.admitRemovals(r.Job, removals); err != nil {
			return 0, err
		}
		for _, r := range removals {
			if len(r.v.r.WithStopGraceOf(r.grace, r.hastened)) >= model.MaxStopGraces && len(r.hastened) > 0 {
				return 0, fault.BadField(fault.ReasonTooLarge, "grace",
					"the workers of a reservation can have at most %d different times to end", model.MaxStopGraces-1)
			}
			count += r.workers.Raise(r.hastened).Len()
		}
		if count == 0 {
			c.rememberIdle(request.Scope(r), model.IdleRequest{ID: mark.ID, Call: mark.Call})
		}
		mark.Cancelled = int32(count)
		c.remove(removals, mark)
		return count, nil
	})
	if err != nil {
		return err
	}
	c.replyStopped(token, waits, WorkersCancelled{Count: count, Unknown: count == 0 && !c.knowsWorkers(r)})
	return nil
}

// named returns the workers of the version that a list names, by their current numbers or
// by the numbers of earlier rounds.
func (c *Core) named(v *version, workers []model.WorkerID) model.WorkerSet {
	var list []model.WorkerID
	for _, workerID := range workers {
		if current, ok := c.current(v, workerID); ok {
			list = append(list, current)
		}
	}
	return model.WorkerSetOf(list)
}

// removable returns the workers that this call removes from a version and no earlier call
// removed. Of a version that was not dispatched, it may remove all workers. Of a
// dispatched version, it may remove the workers that have not ended or are to be
// requeued.
func (c *Core) removable(v *version, workers model.WorkerSet) model.WorkerSet {
	if !v.alive() {
		return nil
	}
	workers = without(workers, v.r.Unwanted)
	if !v.started() {
		return workers
	}
	ended := v.endedWorkers()
	if len(v.returned) > 0 {
		var owed []model.WorkerID
		for w := range c.owed(v) {
			owed = append(owed, w.ID)
		}
		ended = without(ended, model.WorkerSetOf(owed))
	}
	return without(workers, ended)
}

// hastened returns the workers of a started version that have not ended, that this call or an
// earlier one removes, and that get less time to end.
func (c *Core) hastened(v *version, grace time.Duration, workers model.WorkerSet) model.WorkerSet {
	if !v.started() || !v.alive() && !v.is(model.Cancelling) {
		return nil
	}
	if workers = without(workers, v.endedWorkers()); len(workers) == 0 {
		return nil
	}
	return v.r.Hastened(grace, workers)
}

func (c *Core) remove(removals []removal, mark model.RequestMark) {
	changeAll(c, removals, mark, c.removeOne)
}

// removeOne adds the removal of workers from a version to an effect, and returns the
// record that keeps the other workers.
func (c *Core) removeOne(effect *model.Effect, r removal) *model.Reservation {
	if r.v.started() {
		next := c.edit(r.v.r)
		next.Unwanted = next.Unwanted.Raise(r.workers)
		next.StopGraces = r.v.r.WithStopGraceOf(r.grace, r.hastened)
		effect.Puts = append(effect.Puts, next)
		return next
	}
	left := without(r.v.r.Workers, r.workers)
	if len(left) == 0 {
		return c.finish(effect, r.v, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
	}
	next := c.newVersion(r.v.r)
	next.Workers, next.Unwanted, next.PlaceEpoch = left, nil, c.placeEpoch(r.v.r)
	next.Granted = next.Granted || r.v.hasLease() || r.v.isHeld()
	message := fmt.Sprintf("%s cancelled", countWorkers(r.workers.Len()))
	c.finish(effect, r.v, model.Replaced, model.EventReservationReplaced, fault.ReasonCancelled, message)
	effect.Puts = append(effect.Puts, next)
	effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	return next
}
