package dispatch

import (
	"cmp"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// requeue marks a worker that ends if its reservation wants its index queued again; the
// registry then queues the index. write calls requeue once for each worker, in the step that
// ends the worker, so a worker is marked at most once, and in the transaction of its end.
//
// requeue does not mark a worker with the highest number, a worker of a gang of which not all
// workers have run, or a worker with which its gang restarts: that gang is withdrawn, and queued
// again as a whole. The limit of restarts
// counts failures, so a worker that moved is marked whatever the limit is. So is one that was LOST before any
// attempt had started it, if lost workers are replaced.
func (c *Core) requeue(t *task, was, w *model.TaskWorker) {
	r := c.reservations[t.uid]
	switch {
	case !c.wantsRequeue(t, was, w):
	case restartsGang(r, w):
		if !w.Moved() && c.gangFailures(t, w) >= r.Spec.RestartLimit() && !c.mayLose(t) {
			w.Reason = fault.ReasonRoundsExhausted
		}
	case t.startsTogether(r), w.ID.Number >= model.MaxNumber:
	case w.Moved(), w.State == model.WorkerLost && r.Spec.OnWorkerLoss == model.OnLossReplace,
		r.Spec.Restart == model.RestartAlways, r.FailuresBefore(w) < r.Spec.RestartLimit():
		w.Requeue = true
	default:
		w.LastError = cmp.Or(w.LastError, model.Intern(string(w.Reason)))
		w.Reason = fault.ReasonRoundsExhausted
	}
}

// restartsGang reports whether the end of a worker that a policy names restarts its gang, unless its
// limit is reached. A worker that could not be started is queued again by itself: the others lack
// it, but have lost nothing.
func restartsGang(r reservation, w *model.TaskWorker) bool {
	return r.Spec.OnWorkerFailure == model.OnFailedRestart && !w.GaveUp()
}

// mayLose reports whether workers of the gang of a task are on an executor that is absent, or that does not
// answer. A worker may have failed because of that, so the registry decides about the round once the executor
// is LOST or the workers have ended.
func (c *Core) mayLose(t *task) bool {
	for _, uid := range c.versionsOf(t) {
		o := c.tasks[uid]
		if o == nil {
			continue
		}
		for _, chunk := range o.chunks {
			for i := range size(chunk) {
				w := &chunk.Workers[i]
				if h := c.hosts[w.Ordinal]; !w.State.Terminal() && (h == nil || !c.present(h) || !w.UnansweredSince.IsZero()) {
					return true
				}
			}
		}
	}
	return false
}

// movesGang reports whether a worker begins to stop because its executor is drained, and its gang restarts
// elsewhere. The gang is withdrawn at once: the others may fail as soon as the worker exits, and that
// would be no failure of theirs.
func (c *Core) movesGang(t *task, was, w *model.TaskWorker) bool {
	r := c.reservations[t.uid]
	return was.State < model.WorkerEvict && w.State == model.WorkerEvict && w.Reason == fault.ReasonExecutorDraining &&
		!r.ends() && r.Spec.OnWorkerLoss == model.OnLossReplace && restartsGang(r, w) && !t.unwanted.Has(w.ID)
}

// gangFailures returns how many rounds in a row had failed before a worker of a gang failed. A gang
// may have several versions, and their next round counts on from the highest number.
func (c *Core) gangFailures(t *task, w *model.TaskWorker) (failures int32) {
	if w.Stable() {
		return 0
	}
	for _, uid := range c.versionsOf(t) {
		if r := c.reservations[uid]; !r.ends() && r.Origin != model.OriginRequeue {
			failures = max(failures, r.Failures)
		}
	}
	return failures
}

// versionsOf returns the UIDs of the versions of the gang of a task.
func (c *Core) versionsOf(t *task) []string {
	if g := c.reservations[t.uid].adds.gang; g != nil {
		return g.versions
	}
	return []string{t.uid}
}

// restartOf returns the task because of which the gang of a task restarts; nil if it does not. The
// next round has no such task, because the registry replaces all versions of the earlier one.
func (c *Core) restartOf(t *task) *task {
	for _, uid := range c.versionsOf(t) {
		o := c.tasks[uid]
		if o != nil && o != t && o.header != nil && o.header.Restarts() && !c.reservations[uid].ends() {
			return o
		}
	}
	return nil
}

// wantsRequeue reports whether a worker that ends is still wanted, and a policy of its reservation
// names the end. was is the worker before the end.
func (c *Core) wantsRequeue(t *task, was, w *model.TaskWorker) bool {
	r := c.reservations[t.uid]
	return !r.ends() && !t.header.Stopping && !t.unwanted.Has(w.ID) && !w.Outlived(r.Spec.Lifetime) &&
		PolicyNames(&r.Spec, was, w)
}

// PolicyNames reports whether a policy of a reservation names the end of a worker.
//
//   - onAssignmentFailure REQUEUE names workers that were given up.
//   - onWorkerFailure RESTART_GANG names the same as restart ON_FAILURE.
//   - restart ON_FAILURE names FAILED workers that were not given up; ALWAYS names all
//     FAILED and COMPLETED workers.
//     Of these, restartExitCodes may exclude some by their exit codes.
//   - onWorkerLoss REPLACE names LOST workers, EVICTED workers that their executor stopped
//     without a request or because it is drained, workers that failed before the stop request of
//     such a drain arrived, and workers that a cell has lost. Restart does not name the last two.
//
// If a stop was decided, no policy names the end, whatever the state in which the worker
// ends. There are two exceptions: a worker that was given up, and with REPLACE a worker whose
// executor is drained.
func PolicyNames(s *model.Spec, was, w *model.TaskWorker) bool {
	replaces := s.OnWorkerLoss == model.OnLossReplace
	if was.State >= model.WorkerEvict && !was.GaveUp() && !(replaces && was.Reason == fault.ReasonExecutorDraining) {
		return false
	}
	if w.GaveUp() && s.OnFailure != model.OnFailureNotify {
		return true
	}
	switch w.State {
	case model.WorkerCompleted:
		return s.Restart == model.RestartAlways && s.RestartsExit(w.ExitCode)
	case model.WorkerFailed:
		if w.Reason == fault.ReasonCellWorkerLost || w.Reason == fault.ReasonExecutorDraining {
			return replaces
		}
		restarts := s.Restart == model.RestartAlways ||
			(s.Restart == model.RestartOnFailure || s.OnWorkerFailure == model.OnFailedRestart) && !w.GaveUp()
		return restarts && s.RestartsExit(w.ExitCode)
	case model.WorkerLost:
		return replaces
	case model.WorkerEvicted:
		return replaces && w.Moved()
	}
	return false
}
