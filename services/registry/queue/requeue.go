package queue

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The bounds of what rounds add to a version.
const (
	// maxFailed is how many executors that rounds failed on are kept, the latest.
	maxFailed = 16
	// maxWhy is how much of one round's reasons is kept, maxStory how much of those
	// of all rounds, the latest, in bytes.
	maxWhy, maxStory = 400, 4000
)

// owed are the workers of a version that are to be queued again, in order of
// worker indexes: given up by the assigner, still wanted, below a target of the stage
// that was lowered since, and the last of their worker indexes. A higher number means that it was done, by this
// queue or by the job service itself.
func (c *Core) owed(v *version) iter.Seq[model.TaskWorker] {
	return func(yield func(model.TaskWorker) bool) {
		var used model.WorkerSet
		var target int32
		if stage := c.stages[stageKey(v.r.Key)]; stage != nil {
			used, target = stage.Numbers, stage.TargetSize
		}
		// A target drops what it was lowered to, not what was asked for with it.
		lowered := target > 0 && (v.r.Spec.TargetSize == 0 || target < v.r.Spec.TargetSize)
		for _, n := range slices.Sorted(maps.Keys(v.spent)) {
			for _, w := range v.spent[n] {
				highest, _ := used.Number(w.ID.Index)
				dropped := highest > w.ID.Number || v.r.Unwanted.Has(w.ID) || lowered && w.ID.Index >= target ||
					w.ID.Number >= model.MaxNumber
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
	var workers []model.WorkerID
	for w := range c.owed(v) {
		if full(effect) {
			break
		}
		workerID := model.WorkerID{Index: w.ID.Index, Number: w.ID.Number + 1}
		next := c.again(v.r, model.WorkerSetOf([]model.WorkerID{workerID}), []model.TaskWorker{w}, c.whyNot(w))
		next.Origin, next.Parent, next.Reason = model.OriginRequeue, v.uid, fault.ReasonRequeued
		next.Requests = nil
		next.Place, next.PlaceEpoch = c.newPlace(), 0
		workers = append(workers, workerID)
		effect.Puts = append(effect.Puts, next)
		event := c.event(model.EventReservationRequeued, next)
		event.Since = w.Since
		effect.Events = append(effect.Events, event)
	}
	effect.Puts = append(effect.Puts, c.numbered(v.r.Key, model.WorkerSetOf(workers)))
	c.decide(effect)
}

// again answers a version that queues workers of r once more, a round later: it
// knows where those that failed did and when, to avoid their executors for a
// while, and tells why in its message. Its wait begins now.
func (c *Core) again(r *model.Reservation, workers model.WorkerSet, failed []model.TaskWorker, why string) *model.Reservation {
	next := c.edit(r)
	next.UID, next.Epoch = c.newUID(), 0
	next.State, next.CreatedAt = model.Queued, c.now
	next.Workers, next.Unwanted = workers, nil
	next.Round++
	next.Message = roundMessage(r, why)
	next.Failed = nil
	avoided := map[string]bool{"": true} // an executor whose record is gone has no name
	var latest []model.FailedOn
	for _, w := range slices.Backward(failed) { // the first last: the latest are kept
		if id := c.names[w.Ordinal]; !avoided[id] {
			avoided[id] = true
			latest = append(latest, model.FailedOn{Executor: id, At: w.Since})
		}
	}
	for _, f := range r.Failed {
		if !avoided[f.Executor] && f.Avoided(c.now) {
			next.Failed = append(next.Failed, f)
		}
	}
	next.Failed = append(next.Failed, latest...)
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
	if over := len(why) - maxStory; over > 0 {
		why = "…" + strings.ToValidUTF8(why[over:], "")
	}
	return why
}

// neverStarted says that Berth gave up every worker of a version that has ended:
// no attempt started any, and none is queued again.
func (v *version) neverStarted() bool {
	given := 0
	for _, chunk := range v.tasks {
		for _, w := range chunk.Workers {
			up := w.Reason == fault.ReasonAttemptsExhausted || w.Reason == fault.ReasonRoundsExhausted || w.Reason == fault.ReasonExecutorRefuses
			if w.State != model.WorkerFailed || w.Requeue || !up {
				return false
			}
			given++
		}
	}
	return given == v.r.Workers.Len()
}

// firstReason is the reason that the first of its workers, in order of index, ended
// with.
func (v *version) firstReason() fault.Reason {
	for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
		for _, w := range v.tasks[n].Workers {
			return w.Reason
		}
	}
	return ""
}

// whyNone says why none of a version's workers could be started: each reason once,
// with the first worker that it held for.
func (c *Core) whyNone(v *version) string {
	var reasons []string
	seen := map[string]bool{}
	for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
		for _, w := range v.tasks[n].Workers {
			if !seen[w.LastError] {
				seen[w.LastError] = true
				reasons = append(reasons, c.whyNot(w))
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// whyNot says why a worker could not be started, and where.
func (c *Core) whyNot(w model.TaskWorker) string {
	why := w.LastError
	if why == "" {
		why = string(w.Reason)
	}
	return fmt.Sprintf("worker %s on %s: %s", w.ID, c.names[w.Ordinal], why)
}

// numbered is a stage's record with the numbers of more workers used.
func (c *Core) numbered(key model.Key, workers model.WorkerSet) *model.Stage {
	after := model.Stage{Job: key.Job, Stage: key.Stage}
	if before := c.stages[stageKey(key)]; before != nil {
		after = *before
	}
	after.Numbers = after.Numbers.Raise(workers)
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
