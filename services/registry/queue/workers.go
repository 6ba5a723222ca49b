package queue

import (
	"fmt"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// CancelWorkers is the request of a model.Input that removes single workers of
// a stage, under whichever name and in whichever state they are; a worker that
// was queued again goes by its earlier numbers, too. It is answered by
// WorkersCancelled, once none of them will be started any more. Workers that
// are not there are no error.
type CancelWorkers struct {
	Job, Stage string
	Workers    []model.WorkerID
	RequestID  string
}

// WorkersCancelled answers CancelWorkers.
type WorkersCancelled struct {
	// Count is the number of workers that the call removed.
	Count int
}

// removal is what a call takes away from one version.
type removal struct {
	v       *version
	workers model.WorkerSet
}

// cancelWorkers removes workers. A version that was not dispatched is replaced
// in its place by one without them; of one that was they become unwanted, for
// the assigner to evict.
func (c *Core) cancelWorkers(token uint64, request CancelWorkers) {
	if err := ValidateCancelWorkers(request); err != nil {
		c.refuse(token, err)
		return
	}
	stage, call := model.Key{Job: request.Job, Stage: request.Stage}, request.call()
	var named, removals []removal
	count, repeat := 0, -1
	for key := range c.keys.From(stage) {
		if stageKey(key) != stage {
			break
		}
		switch _, mark := c.remembered(key, request.RequestID); {
		case !repeats(mark.Call, call):
			c.refuse(token, anotherCall(request.RequestID))
			return
		case mark.Cancelled > 0:
			repeat = int(mark.Cancelled)
		}
		for _, v := range c.byKey[key] {
			workers := v.named(request.Workers)
			if len(workers) == 0 {
				continue
			}
			named = append(named, removal{v, workers})
			if workers = c.removable(v, workers); len(workers) > 0 {
				removals = append(removals, removal{v, workers})
				count += workers.Len()
			}
		}
	}
	if idle, ok := c.idle(stage, request.RequestID); ok {
		if !repeats(idle.Call, call) {
			c.refuse(token, anotherCall(request.RequestID))
			return
		}
		repeat = 0
	}
	switch err := c.admitRemovals(request.Job, removals); {
	case repeat >= 0:
		count = repeat
	case err != nil:
		c.refuse(token, err)
		return
	case count == 0:
		c.rememberIdle(stage, model.IdleRequest{ID: request.RequestID, Call: call})
	default:
		c.remove(removals, model.RequestMark{ID: request.RequestID, Cancelled: int32(count), Call: call})
	}
	waits := make([]wait, 0, len(named))
	for _, r := range named {
		waits = append(waits, wait{v: r.v, workers: r.workers})
	}
	c.replyStopped(token, waits, WorkersCancelled{count})
}

// named finds workers of the version by their numbers, or earlier ones.
func (v *version) named(workers []model.WorkerID) model.WorkerSet {
	var list []model.WorkerID
	for _, workerID := range workers {
		if current, ok := v.current(workerID); ok {
			list = append(list, current)
		}
	}
	return model.WorkerSetOf(list)
}

// removable are those of a version's workers that a call takes away: all that
// wait; of those dispatched the ones that live, or are to be queued again, and
// that no call before took.
func (c *Core) removable(v *version, workers model.WorkerSet) model.WorkerSet {
	if !v.alive() {
		return nil
	}
	workers = without(workers, v.r.Unwanted)
	if !v.started() {
		return workers
	}
	ended := map[model.WorkerID]bool{}
	for _, chunk := range v.tasks {
		for _, w := range chunk.Workers {
			ended[w.ID] = w.State.Terminal()
		}
	}
	if len(v.spent) > 0 {
		for w := range c.owed(v) {
			ended[w.ID] = false
		}
	}
	return model.WorkerSetOf(slices.DeleteFunc(workers.List(), func(workerID model.WorkerID) bool { return ended[workerID] }))
}

// remove takes workers away, of as many versions in one effect as it holds. The
// last effect alone carries the mark of the call: found, all was done.
func (c *Core) remove(removals []removal, mark model.RequestMark) {
	var effect model.Effect
	for i, r := range removals {
		c.makeRoom(&effect)
		next := c.removeFrom(&effect, r.v, r.workers)
		if i == len(removals)-1 {
			remember(next, mark)
		}
	}
	c.decide(effect)
}

// removeFrom adds to an effect that a version loses workers, and answers the
// record that goes on.
func (c *Core) removeFrom(effect *model.Effect, v *version, workers model.WorkerSet) *model.Reservation {
	if v.started() {
		next := c.edit(v.r)
		next.Unwanted = v.r.Unwanted.Raise(workers)
		effect.Puts = append(effect.Puts, next)
		return next
	}
	left := without(v.r.Workers, workers)
	if len(left) == 0 {
		return c.finish(effect, v, model.Cancelled, model.EventReservationCancelled, fault.ReasonCancelled, "")
	}
	next := c.edit(v.r)
	next.UID, next.Epoch = c.newUID(), 0
	next.Workers, next.Unwanted, next.PlaceEpoch = left, nil, c.placeEpoch(v.r)
	c.finish(effect, v, model.Replaced, model.EventReservationReplaced, fault.ReasonCancelled,
		cancelledOf(workers.Len()))
	effect.Puts = append(effect.Puts, next)
	effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	return next
}

func cancelledOf(n int) string {
	if n == 1 {
		return "1 of its workers was cancelled"
	}
	return fmt.Sprintf("%d of its workers were cancelled", n)
}

// ValidateCancelWorkers says whether a call is one that can be carried out. A
// refusal is a *fault.Error that names the field in the words of the JSON.
func ValidateCancelWorkers(request CancelWorkers) error {
	for _, field := range []struct{ name, value string }{{"job", request.Job}, {"stage", request.Stage}} {
		if err := checkName(field.name, field.value, maxName); err != nil {
			return err
		}
	}
	if request.RequestID != "" {
		if err := checkName("requestId", request.RequestID, maxName); err != nil {
			return err
		}
	}
	switch {
	case len(request.Workers) == 0:
		return fault.BadField(fault.ReasonRequired, "workers", "no worker is named")
	case len(request.Workers) > model.MaxWorkers:
		return fault.BadField(fault.ReasonTooLarge, "workers", "are more than %d", model.MaxWorkers)
	}
	for i, workerID := range request.Workers {
		if workerID.Index < 0 {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].index", i), "is negative")
		}
		if workerID.Number < 0 {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].number", i), "is negative")
		}
		if workerID.Number == 0 {
			return fault.BadField(fault.ReasonRequired, fmt.Sprintf("workers[%d].number", i), "is missing: which number of worker index %d to cancel, at least 1", workerID.Index)
		}
	}
	return nil
}
