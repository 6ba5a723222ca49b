package queue

import (
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// nextRound continues with a batch that should have started together and could not. It is
// called once all workers of the batch have ended and its lease is over. The batch
// is queued again in its place, every worker with the next unused number of its index, until
// maxAttempts rounds have failed. A round that ended because workers moved did not fail. Workers
// that were cancelled since are left out, and so are workers whose index the job service has
// requested again.
func (c *Core) nextRound(v *version) {
	failed, reason, failures := v.culprits(), v.header.Message, v.r.Failures
	if reason == "" && len(failed) > 0 {
		reason = c.failure(failed[0])
	}
	lost := lostIn(v)
	if lost != nil { // that explains the failures of others; see countRound
		reason = c.failure(*lost)
	}
	text := movedText(reason)
	if lost == nil && !v.roundMoved() {
		failures++
		text = roundText(failures, reason)
	}
	left := c.leftOf(v)
	switch {
	case len(v.wanted()) == 0:
		c.put(c.end(v.r, model.Cancelled, fault.ReasonCancelled, ""), model.EventReservationCancelled)
		return
	case len(left) == 0:
		c.put(c.end(v.r, model.Replaced, fault.ReasonReplaced, reason), model.EventReservationReplaced)
		return
	case failures > v.r.Failures && failures >= v.r.Requested().MaxAttempts:
		c.put(c.end(v.r, model.Failed, fault.ReasonRoundsExhausted, withEarlier(v.r, text)), model.EventReservationFailed)
		return
	}
	used := c.stage(v.r.Key).Numbers
	for i, workerID := range left {
		left[i].Number = nextNumber(used, workerID)
		if left[i].Number > model.MaxNumber {
			c.put(c.end(v.r, model.Failed, fault.ReasonNotTogether, noNumberLeft(workerID.Index, model.MaxNumber)),
				model.EventReservationFailed)
			return
		}
	}
	old := c.end(v.r, model.Replaced, fault.ReasonNotTogether, reason)
	next := c.nextVersion(v.r, model.WorkerSetOf(left), failed, text)
	next.Parent, next.Reason, next.PlaceEpoch = v.uid, fault.ReasonNotTogether, c.orderedEpoch(v.r)
	next.Failures = failures
	if len(failed) > 0 && failures > v.r.Failures {
		next.FailedFor = failedFor(failed[0])
	}
	takeRequest(next)
	if !request.SameConstraints(next.Spec.Constraints, v.r.Spec.Constraints) {
		next.Place, next.PlaceEpoch = c.newPlace(), 0
	}
	c.decide(model.Effect{
		Puts: []model.Record{old, next, c.withNumbers(v.r.Key, next.Workers)},
		Events: []model.JobEvent{
			c.event(model.EventReservationReplaced, old),
			c.event(model.EventReservationRequeued, next),
		},
	})
}

// leftOf returns the wanted workers of a version, except those whose index another living
// version of the key has with a higher number.
func (c *Core) leftOf(v *version) []model.WorkerID {
	others := slices.DeleteFunc(c.living(v.r.Key).all(), func(o *version) bool { return o == v })
	requested := union(others, (*version).wanted)
	return slices.DeleteFunc(v.wanted().List(), func(workerID model.WorkerID) bool {
		number, _ := requested.Number(workerID.Index)
		return number > workerID.Number
	})
}

// roundMoved reports whether a batch could not start together because workers moved, and for no
// other reason: none of its workers failed before the withdrawal, and none completed that its
// reservation starts again.
func (v *version) roundMoved() bool {
	moved := false
	for w := range v.taskWorkers() {
		switch {
		case w.Moved():
			moved = true
		case w.Reason == fault.ReasonNotTogether: // it ended because of the withdrawal
		case w.State == model.WorkerFailed, w.State == model.WorkerLost,
			w.State == model.WorkerCompleted && v.r.Spec.Restart == model.RestartAlways:
			return false
		}
	}
	return moved
}

// culprits returns the workers that failed, the first in time first. After these come the workers
// that the assigner stopped because of them after an attempt to start them had failed. The next
// round avoids the executors of both.
func (v *version) culprits() []model.TaskWorker {
	var failed, stopped []model.TaskWorker
	for w := range v.taskWorkers() {
		switch {
		case w.Moved(), w.State == model.WorkerFailed && w.Reason == fault.ReasonNotTogether:
		case w.State == model.WorkerFailed || w.State == model.WorkerLost:
			failed = append(failed, w)
		case !w.LastError.IsEmpty() && w.Incarnation == 0: // no attempt was acknowledged
			stopped = append(stopped, w)
		}
	}
	slices.SortFunc(failed, model.InTime)
	return append(failed, stopped...)
}
