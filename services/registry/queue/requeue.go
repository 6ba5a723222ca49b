package queue

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// These bound what failed rounds add to the record of a version.
const (
	// maxFailed is how many failed executors a version remembers: the latest.
	maxFailed = 16
	// maxReason bounds the reasons of one round in a message. maxMessage bounds the reasons
	// of all rounds, of which the latest are kept. Both are in bytes.
	maxReason, maxMessage = 400, 4000
)

// owed returns the workers of a version that the assigner returned and about which the registry has not
// decided, in order of index: they are wanted, and their index was not queued again. The value is true if
// they are to be requeued. It is false if a target size that was lowered since drops them, or their index
// has no number left. The version then records that they are missing.
func (c *Core) owed(v *version) iter.Seq2[model.TaskWorker, bool] {
	return func(yield func(model.TaskWorker, bool) bool) {
		stage := c.stage(v.r.Key)
		for _, n := range slices.Sorted(maps.Keys(v.returned)) {
			for _, w := range v.returned[n] {
				next := nextNumber(stage.Numbers, w.ID)
				queued := v.r.Requeued.Has(w.ID) || !v.r.RecordsRequeues && next > w.ID.Number+1
				again := next <= model.MaxNumber && !targetDrops(stage, v.r, w.ID.Index)
				missing, isMissing := v.r.Missing.Number(w.ID.Index) // of a deleted version, it may be a later worker
				decided := queued || v.r.Unwanted.Has(w.ID) || !again && isMissing && missing >= w.ID.Number
				if !decided && !yield(w, again) {
					return
				}
			}
		}
	}
}

// targetDrops reports whether a target size that was lowered since the request of r drops a worker
// index. The request that set it keeps its workers.
func targetDrops(stage model.Stage, r *model.Reservation, index int32) bool {
	lowered := stage.TargetSize > 0 && (r.Spec.TargetSize == 0 || stage.TargetSize < r.Spec.TargetSize)
	return lowered && index >= stage.TargetSize
}

// owesRequeue reports whether a version has workers to be requeued, or to be recorded as missing.
func (c *Core) owesRequeue(v *version) bool {
	if v.alive() {
		for range c.owed(v) {
			return true
		}
	}
	return false
}

// nextNumber returns the number with which a worker is queued again: the next unused number
// of its index in the stage.
func nextNumber(used model.WorkerSet, workerID model.WorkerID) int32 {
	highest, _ := used.Number(workerID.Index)
	return max(highest, workerID.Number) + 1
}

// requestedAgain reports whether another version of the key has a later worker of the index.
// Either the job service requested the index after the worker had ended, or a leader of an
// older Berth version queued the worker again without recording it. An ended version counts,
// because its workers may have been cancelled, except for a request that expired before it had executors.
func (c *Core) requestedAgain(key model.Key, workerID model.WorkerID) bool {
	later := func(workers model.WorkerSet) bool {
		number, _ := workers.Number(workerID.Index)
		return number > workerID.Number
	}
	return slices.ContainsFunc(c.byKey[key], func(v *version) bool {
		return later(v.r.Workers) && !c.cameToNothing(v) ||
			hasPast(v) && slices.ContainsFunc(pastSets([]*version{v}, nil), later)
	})
}

// requeue queues workers that no attempt started, or that are restarted or replaced, each as
// a version of its own, with the next unused number. It records them, and workers whose index
// the key has requested again, in the version that had them. It queues as many workers as one
// effect holds. Later steps queue the others.
func (c *Core) requeue(v *version) {
	var effect model.Effect
	var recorded, missing, workers []model.WorkerID
	used := c.stage(v.r.Key).Numbers
	for w, again := range c.owed(v) {
		if isFull(effect) {
			break
		}
		if !again {
			missing = append(missing, w.ID)
			continue
		}
		recorded = append(recorded, w.ID)
		workerID := model.WorkerID{Index: w.ID.Index, Number: nextNumber(used, w.ID)}
		if workerID.Number > w.ID.Number+1 && c.requestedAgain(v.r.Key, w.ID) {
			continue
		}
		var failed []model.TaskWorker
		if w.RunningSince.IsZero() && !w.Moved() { // else the executor did not fail to start it
			failed = append(failed, w)
		}
		next := c.nextVersion(v.r, model.WorkerSetOf([]model.WorkerID{workerID}), failed, c.attemptText(v.r, w))
		next.Origin, next.Parent = model.OriginRequeue, v.requeuedFrom()
		next.Earlier = withNumber(c.earlierNumbers(v, w.ID), w.ID.Number)
		end := c.restart(next, v.r, w)
		next.FailedFor = failedFor(w)
		next.Latest = withoutList(next.Latest)
		takeRequest(next)
		next.Requests = nil
		if next.Spec.Requeue == model.RequeueByOrder {
			next.Place, next.PlaceEpoch = c.placedBy(v.r).Place, c.orderedEpoch(v.r)
		} else {
			next.Place, next.PlaceEpoch = c.newPlace(), 0
		}
		workers = append(workers, workerID)
		effect.Puts = append(effect.Puts, next)
		event := c.event(model.EventReservationRequeued, next)
		event.Since = w.Since.Time()
		if end != nil {
			event.Workers = []model.EventWorker{*end}
		}
		effect.Events = append(effect.Events, event)
	}
	from := c.edit(v.r)
	from.Requeued = from.Requeued.Raise(model.WorkerSetOf(recorded))
	from.Missing = from.Missing.Raise(model.WorkerSetOf(missing))
	effect.Puts = append(effect.Puts, from)
	if len(workers) > 0 {
		effect.Puts = append(effect.Puts, c.withNumbers(v.r.Key, model.WorkerSetOf(workers)))
	}
	c.decide(effect)
}

// orderedEpoch returns the epoch that orders a worker of a version BY_ORDER: that of the version's place
// before its dispatch was refused, or if the version itself was queued again FIRST, that of the version from
// which it descends.
func (c *Core) orderedEpoch(r *model.Reservation) int64 {
	r = c.placedBy(r)
	return cmp.Or(r.RefusedEpoch, c.placeEpoch(r))
}

// placedBy returns the version whose place orders the workers of a version BY_ORDER: of one that was queued
// again FIRST, that from which it descends.
func (c *Core) placedBy(r *model.Reservation) *model.Reservation {
	if parent := c.versions[r.Parent]; r.RequeuedFirst() && parent != nil && parent.r != nil {
		return parent.r
	}
	return r
}

// requeuedFrom returns the parent of the requeues of a version's workers: the version
// itself, or its parent if it is a requeue. So an ended requeue is no parent and need not
// be kept, however often its worker is queued again.
func (v *version) requeuedFrom() string {
	if v.r.Origin == model.OriginRequeue {
		return v.r.Parent
	}
	return v.uid
}

// nextVersion returns a version that queues workers of r one round later. It records on
// which executors workers failed and when, so that matching avoids these executors for a
// while. Its message ends with the reason. It has no queueTimeout, which ended with the grant of r.
func (c *Core) nextVersion(r *model.Reservation, workers model.WorkerSet, failed []model.TaskWorker,
	reason string) *model.Reservation {
	next := c.newVersion(r)
	next.State, next.CreatedAt = model.Queued, c.now
	next.Workers, next.Unwanted, next.Requeued, next.RecordsRequeues = workers, nil, nil, false
	next.Granted, next.Missing, next.Split = true, nil, false
	next.RefusedEpoch, next.EarlierOf = 0, nil
	next.Round++
	next.Message = withEarlier(r, reason)
	next.Failed, next.FailedFor = nil, ""
	avoided := map[string]bool{"": true} // an executor whose record was deleted has no name
	var latest []model.FailedOn
	for _, w := range slices.Backward(failed) { // maxFailed keeps the end, so the first goes last
		if id := c.names[w.Ordinal]; !avoided[id] {
			avoided[id] = true
			latest = append(latest, model.FailedOn{Executor: id, At: w.Since.Time(), BadTask: w.BadTask,
				Refused: refusedTask(w)})
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

// failedFor returns the reason of the failure of a worker that is queued again; empty if it moved or was
// COMPLETED. If no attempt started the worker, it is the reason with which its executor refused the last
// one.
func failedFor(w model.TaskWorker) fault.Reason {
	if w.Moved() || w.State == model.WorkerCompleted {
		return ""
	}
	reason := fault.Reason(w.Reason)
	if reason == fault.ReasonAttemptsExhausted || reason == fault.ReasonRoundsExhausted {
		switch refused := w.RefusedFor(); refused {
		case fault.ReasonNotAllowed, fault.ReasonStartFailed, fault.ReasonRequired, fault.ReasonBadName, fault.ReasonInvalid,
			fault.ReasonTooLarge, fault.ReasonVolumeMissing, fault.ReasonVolumeDestroyed:
			return refused
		}
	}
	return reason
}

// refusedTask reports whether the agent of a worker refused its task because of its allow-lists, for
// a reason that every agent with equal lists has.
func refusedTask(w model.TaskWorker) bool {
	switch w.RefusedFor() {
	case fault.ReasonNotAllowed, fault.ReasonRequired, fault.ReasonBadName:
		return w.BadTask
	}
	return false
}

// attemptText says as which round in a row a worker of a version failed, and how, or that it moved.
func (c *Core) attemptText(r *model.Reservation, w model.TaskWorker) string {
	if w.Moved() {
		return movedText(c.failure(w))
	}
	return roundText(r.FailuresBefore(&w)+1, c.failure(w))
}

// roundText says why a round failed. Rounds are counted as the limits of the reservation count them.
func roundText(round int32, reason string) string {
	return fmt.Sprintf("round %d: %s", round, clipped(reason))
}

// movedText says why workers moved, which is no round.
func movedText(reason string) string { return "moved: " + clipped(reason) }

// withEarlier returns a text after the message of the earlier rounds of a version.
func withEarlier(r *model.Reservation, message string) string {
	if r.Round > 0 && r.Message != "" {
		message = r.Message + "; " + message
	}
	if over := len(message) - maxMessage; over > 0 {
		message = "…" + strings.ToValidUTF8(message[over:], "")
	}
	return message
}

// clipped returns a reason of at most about maxReason bytes.
func clipped(reason string) string {
	if len(reason) > maxReason {
		return strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return reason
}

// gaveUpAll reports whether Berth gave up every worker of an ended version: it could not be
// started, or it ran and failed too often, and no worker is requeued.
func (v *version) gaveUpAll() bool {
	n := 0
	for w := range v.taskWorkers() {
		givenUp := w.GaveUp() || w.Reason == fault.ReasonRoundsExhausted
		if w.State != model.WorkerFailed || w.Requeue || !givenUp {
			return false
		}
		n++
	}
	return n == v.r.Workers.Len()
}

// firstReason returns the reason with which the first worker of the version ended.
func (v *version) firstReason() fault.Reason {
	for _, w := range slices.SortedFunc(v.taskWorkers(), model.InTime) {
		return w.Reason
	}
	return ""
}

// failuresByReason describes why Berth gave up all workers of a version: each reason once, with the
// first worker that has it, in the order of time.
func (c *Core) failuresByReason(v *version) string {
	var reasons []string
	seen := map[model.Interned]bool{}
	for _, w := range slices.SortedFunc(v.taskWorkers(), model.InTime) {
		if !seen[w.LastError] {
			seen[w.LastError] = true
			reasons = append(reasons, c.failure(w))
		}
	}
	return strings.Join(reasons, "; ")
}

// failure describes how a worker ended or why it could not be started, and on which
// executor.
func (c *Core) failure(w model.TaskWorker) string {
	return fmt.Sprintf("worker %s on %s: %s", w.ID, c.names[w.Ordinal], endText(w))
}

// endText describes how a worker ended or why it could not be started. If a worker that
// ended by itself has no error, its exit code says more than the reason, which the assigner
// repeats in the error of a worker that it gives up. The exit code of a worker that was stopped
// says nothing: the reason says why Berth stopped it.
func endText(w model.TaskWorker) string {
	last := w.LastError.String()
	repeated := w.ExitCode != nil && (last == string(fault.ReasonExited) || last == string(fault.ReasonKilled))
	switch {
	case last != "" && !repeated:
		return last
	case w.State == model.WorkerCompleted:
		return "completed"
	case w.ExitCode != nil && w.State != model.WorkerEvicted:
		return fmt.Sprintf("exit code %d", *w.ExitCode)
	}
	return string(w.Reason)
}
