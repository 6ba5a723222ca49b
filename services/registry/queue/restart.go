package queue

import (
	"cmp"
	"fmt"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// delay returns why a version is not in its queue yet.
func (v *version) delay() (fault.Reason, string) {
	until := "until " + v.r.NotBefore.UTC().Format(time.RFC3339)
	if v.r.Origin != model.OriginRequeue && v.r.Reason != fault.ReasonGangRestarted {
		return fault.ReasonNotBefore, until
	}
	return fault.ReasonRestarting, until + "; " + v.r.Message
}

// restart sets the fields of a requeue that depend on how its worker of the version from ended:
// how many failures there were in a row, when the requeue enters its queue, and why it is queued.
// A worker that moved did not fail, so its requeue keeps the number and enters its queue at once.
// restart returns how the worker ended, for the event; nil if the worker could not be started and
// its reservation restarts none.
func (c *Core) restart(next, from *model.Reservation, w model.TaskWorker) *model.EventWorker {
	if w.Stable() {
		next.Message = c.attemptText(from, w)
	}
	next.Failures = from.FailuresBefore(&w)
	if !w.Moved() {
		next.Failures++
	}
	next.Reason, next.NotBefore = fault.ReasonRequeued, time.Time{}
	if !next.Spec.TracksRunning() {
		return nil
	}
	next.Reason = fault.ReasonRestarting
	if delay := model.RestartDelay(next.Failures); delay > 0 && !w.Moved() {
		next.NotBefore = w.Since.Time().Add(delay)
	}
	return &model.EventWorker{ID: next.Workers.List()[0], Executor: c.names[w.Ordinal], State: w.State, Reason: w.Reason,
		ExitCode: w.ExitCode}
}

// gaveUp reports whether a worker of the version is not queued again because its limit is
// reached.
func (v *version) gaveUp() bool {
	return v.r != nil &&
		(v.workers.givenUp > 0 || v.r.State.Terminal() && v.r.Reason == fault.ReasonRoundsExhausted)
}

// loops reports whether the version restarts its worker without a limit, and more often than
// the limit allows for others.
func (v *version) loops() bool {
	return v.alive() && v.r.Spec.Restart == model.RestartAlways && v.r.Failures > v.r.Spec.RestartLimit()
}

// restartFinding returns the finding about the restarts of a version in c.unstable.
func (c *Core) restartFinding(v *version, now time.Time) (Finding, bool) {
	f := Finding{Object: v.r.Key.String(), Since: v.r.CreatedAt}
	if v.gaveUp() {
		f.Kind, f.Since = FindingGaveUp, v.r.UpdatedAt
		f.Message = cmp.Or(v.failures(), v.r.Message, string(fault.ReasonRoundsExhausted))
		f.Action = "Berth does not queue the worker again; the job service requests it again, or cancels the reservation"
		return f, true
	}
	for w := range v.taskWorkers() {
		if w.State == model.WorkerRunning && now.Sub(w.RunningSince.Time()) >= model.StableAfter {
			return Finding{}, false
		}
	}
	f.Kind = FindingCrashLoop
	f.Message = fmt.Sprintf("restarted %d times in a row; %s", v.r.Failures, v.r.Message)
	f.Action = fmt.Sprintf("Berth continues to restart the worker, with up to %v between restarts", model.MaxRestartDelay)
	return f, true
}
