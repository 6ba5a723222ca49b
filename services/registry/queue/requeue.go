package queue

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// The bounds of what rounds add to a version.
const (
	// maxFailed is how many executors that rounds failed on are kept, the latest.
	maxFailed = 16
	// maxWhy is how much of one round's error is kept, in bytes.
	maxWhy = 200
)

// owed are the workers of a version that are to be queued again, in order of
// seats: given up by the assigner, still wanted, below a target of the stage
// that was lowered since, and the last of their seats. A higher number means that it was done, by this
// queue or by the job service itself.
func (c *Core) owed(v *version) iter.Seq[model.TaskWorker] {
	return func(yield func(model.TaskWorker) bool) {
		var used model.Seats
		var target int32
		if stage := c.stages[stageKey(v.r.Key)]; stage != nil {
			used, target = stage.Numbers, stage.TargetSize
		}
		// A target drops what it was lowered to, not what was asked for with it.
		lowered := target > 0 && (v.r.Spec.TargetSize == 0 || target < v.r.Spec.TargetSize)
		for _, n := range slices.Sorted(maps.Keys(v.spent)) {
			for _, w := range v.spent[n] {
				highest, _ := used.Number(w.Seat.Index)
				dropped := highest > w.Seat.Number || v.r.Unwanted.Has(w.Seat) || lowered && w.Seat.Index >= target ||
					w.Seat.Number >= model.MaxNumber
				if !dropped && !yield(w) {
					return
				}
			}
		}
	}
}

// owes says whether a version has workers to be queued again.
func (c *Core) owes(v *version) bool {
	if v.alive() {
		for range c.owed(v) {
			return true
		}
	}
	return false
}

// requeue queues workers that no attempt started, each as a version for itself,
// with its next number: as many as one effect holds, the others in later steps.
func (c *Core) requeue(v *version) {
	var effect model.Effect
	var seats []model.Seat
	for w := range c.owed(v) {
		if full(effect) {
			break
		}
		seat := model.Seat{Index: w.Seat.Index, Number: w.Seat.Number + 1}
		next := c.again(v.r, model.SeatsOf([]model.Seat{seat}), w, c.whyNot(w))
		next.Origin, next.Parent, next.Reason = model.OriginRequeue, v.uid, fault.ReasonRequeued
		next.Requests = nil
		next.Place, next.PlaceEpoch = c.newPlace(), 0
		seats = append(seats, seat)
		effect.Puts = append(effect.Puts, next)
		event := c.event(model.EventReservationRequeued, next)
		event.Since = w.Since
		effect.Events = append(effect.Events, event)
	}
	effect.Puts = append(effect.Puts, c.numbered(v.r.Key, model.SeatsOf(seats)))
	c.decide(effect)
}

// again answers a version that queues workers of r once more, a round later: it
// knows where the one that failed did and when, to avoid that executor for a
// while, and tells why in its message. Its wait begins now.
func (c *Core) again(r *model.Reservation, seats model.Seats, failed model.TaskWorker, why string) *model.Reservation {
	next := c.edit(r)
	next.UID, next.Epoch = c.newUID(), 0
	next.State, next.CreatedAt = model.Queued, c.now
	next.Seats, next.Unwanted = seats, nil
	next.Round++
	next.Message = roundMessage(r, why)
	next.Failed = nil
	id := ""
	if failed.State.Terminal() {
		id = c.names[failed.Ordinal] // empty where its record is gone
	}
	for _, f := range r.Failed {
		if f.Executor != id && f.Avoided(c.now) {
			next.Failed = append(next.Failed, f)
		}
	}
	if id != "" {
		next.Failed = append(next.Failed, model.FailedOn{Executor: id, At: failed.Since})
	}
	next.Failed = next.Failed[max(0, len(next.Failed)-maxFailed):]
	return next
}

// roundMessage adds why this round failed to what earlier ones had to tell.
func roundMessage(r *model.Reservation, why string) string {
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + "…"
	}
	why = fmt.Sprintf("round %d: %s", r.Round+1, why)
	if r.Round > 0 && r.Message != "" {
		why = r.Message + "; " + why
	}
	return why
}

// whyNot says why a worker could not be started, and where.
func (c *Core) whyNot(w model.TaskWorker) string {
	why := w.LastError
	if why == "" {
		why = string(w.Reason)
	}
	return fmt.Sprintf("worker %s on %s: %s", w.Seat, c.names[w.Ordinal], why)
}

// numbered is a stage's record with the numbers of more seats used.
func (c *Core) numbered(key model.Key, seats model.Seats) *model.Stage {
	after := model.Stage{Job: key.Job, Stage: key.Stage}
	if before := c.stages[stageKey(key)]; before != nil {
		after = *before
	}
	after.Numbers = after.Numbers.Raise(seats)
	return &after
}

// setSpent keeps the workers of a task's chunk that are to be queued again.
func (v *version) setSpent(n int32, record model.Record) {
	delete(v.spent, n)
	chunk, _ := record.(*model.TaskChunk)
	if chunk == nil {
		return
	}
	for _, w := range chunk.Workers {
		if w.Requeue {
			if v.spent == nil {
				v.spent = map[int32][]model.TaskWorker{}
			}
			v.spent[n] = append(v.spent[n], w)
		}
	}
}

// enterSpent and leaveSpent keep the versions that a stage's record tells of
// whether they have workers to be queued again.
func (c *Core) enterSpent(v *version) {
	if len(v.spent) == 0 || !v.alive() || v.held {
		return
	}
	key := stageKey(v.r.Key)
	if c.spent[key] == nil {
		c.spent[key] = map[string]*version{}
	}
	c.spent[key][v.uid] = v
}

func (c *Core) leaveSpent(v *version) {
	if len(v.spent) == 0 || v.r == nil {
		return
	}
	key := stageKey(v.r.Key)
	if delete(c.spent[key], v.uid); len(c.spent[key]) == 0 {
		delete(c.spent, key)
	}
}

// setExecutor keeps the names that leases have short forms of.
func (c *Core) setExecutor(id string, record model.Record) {
	if ordinal, known := c.executors[id]; known {
		delete(c.names, ordinal)
		delete(c.executors, id)
	}
	if e, there := record.(*model.Executor); there {
		c.executors[id], c.names[e.Ordinal] = e.Ordinal, id
	}
}
