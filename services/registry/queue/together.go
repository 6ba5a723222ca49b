package queue

import (
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// nextRound goes on with a batch that was to start together and could not, once
// all its workers have ended and nothing is leased to it: the whole of it is
// queued again in its old place, every worker with its next number, until the
// rounds are spent. Workers that were cancelled meanwhile are left out, and those
// whose worker indexes the job service has asked for again.
func (c *Core) nextRound(v *version) {
	failed, why := v.culprits(), v.header.Message
	if why == "" && len(failed) > 0 {
		why = c.whyNot(failed[0])
	}
	wanted, asked := v.wanted(), c.askedAgain(v)
	var left []model.WorkerID
	for workerID := range wanted.All() {
		if number, again := asked.Number(workerID.Index); !again || number <= workerID.Number {
			left = append(left, workerID)
		}
	}
	switch {
	case len(wanted) == 0:
		c.put(c.end(v.r, model.Cancelled, fault.ReasonCancelled, ""), model.EventReservationCancelled)
		return
	case len(left) == 0:
		c.put(c.end(v.r, model.Replaced, fault.ReasonReplaced, why), model.EventReservationReplaced)
		return
	case v.r.Round+1 >= v.r.Spec.MaxAttempts:
		failed := c.end(v.r, model.Failed, fault.ReasonRoundsExhausted, roundMessage(v.r, why))
		c.put(failed, model.EventReservationFailed)
		return
	}
	var used model.WorkerSet
	if stage := c.stages[stageKey(v.r.Key)]; stage != nil {
		used = stage.Numbers
	}
	var workers []model.WorkerID
	for _, workerID := range left {
		highest, _ := used.Number(workerID.Index)
		number := max(highest, workerID.Number)
		if number >= model.MaxNumber {
			c.put(c.end(v.r, model.Failed, fault.ReasonNotTogether, noNumber(workerID.Index, model.MaxNumber)), model.EventReservationFailed)
			return
		}
		workers = append(workers, model.WorkerID{Index: workerID.Index, Number: number + 1})
	}
	old := c.end(v.r, model.Replaced, fault.ReasonNotTogether, why)
	next := c.again(v.r, model.WorkerSetOf(workers), failed, why)
	next.Parent, next.Reason, next.PlaceEpoch = v.uid, fault.ReasonNotTogether, c.placeEpoch(v.r)
	c.decide(model.Effect{
		Puts: []model.Record{old, next, c.numbered(v.r.Key, next.Workers)},
		Events: []model.JobEvent{
			c.event(model.EventReservationReplaced, old),
			c.event(model.EventReservationRequeued, next),
		},
	})
}

// askedAgain are the workers of the other living versions of its key.
func (c *Core) askedAgain(v *version) model.WorkerSet {
	var all model.WorkerSet
	for _, other := range c.living(v.r.Key).all() {
		if other != v {
			all = all.Raise(other.wanted())
		}
	}
	return all
}

// culprits are the workers, in order of index, that ended by themselves and not
// well, before those that were stopped because of them while an attempt to start
// them had failed too: their executors are no better.
func (v *version) culprits() []model.TaskWorker {
	var ended, stopped []model.TaskWorker
	for _, n := range slices.Sorted(maps.Keys(v.tasks)) {
		for _, w := range v.tasks[n].Workers {
			switch {
			case w.State == model.WorkerFailed || w.State == model.WorkerLost:
				ended = append(ended, w)
			case w.LastError != "" && w.Incarnation == 0: // no attempt was acknowledged
				stopped = append(stopped, w)
			}
		}
	}
	return append(ended, stopped...)
}
