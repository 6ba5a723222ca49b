package audit

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// split is a reservation whose workers changed.
type split struct {
	v      *version
	before model.WorkerSet
}

// requeued is a reservation whose record now names other workers as queued again.
type requeued struct {
	v      *version
	before model.WorkerSet
}

// checkRequeued checks that a reservation records a worker as queued again only if it has a
// version with a later worker of the index, and that it does not forget such a worker. An older
// version of Berth that writes the record drops the list as a whole.
func (a *Auditor) checkRequeued() {
	for _, s := range a.step.requeued {
		if s.v.r == nil || len(s.v.r.Requeued) == 0 && !s.v.r.RecordsRequeues {
			continue
		}
		if !s.before.SubsetOf(s.v.r.Requeued) {
			a.violate(RuleImmutable, "%s forgot that workers were queued again", s.v)
		}
		for workerID := range s.v.r.Requeued.All() {
			if !s.before.Has(workerID) && !a.hasLater(s.v, workerID) {
				a.violate(RuleOrigin, "%s records that worker %s was queued again, but there is no later worker of it", s.v,
					workerID)
			}
		}
	}
}

// hasLater reports whether the reservation of a version has a later worker of an index, or had
// one until this revision.
func (a *Auditor) hasLater(v *version, workerID model.WorkerID) bool {
	for _, o := range a.versions {
		if r := cmp.Or(o.r, o.was); r != nil && o.key == v.key {
			if number, _ := r.Workers.Number(workerID.Index); number > workerID.Number {
				return true
			}
		}
	}
	return false
}

// checkSplits checks that workers leave a reservation only before the reservation is leased,
// and only as a part that the same revision accepts. If that revision also cancels single
// workers, it replaces the part with a smaller version. The smaller version does not count
// as a second part.
func (a *Auditor) checkSplits() {
	for _, s := range a.step.split {
		if s.v.r == nil {
			continue
		}
		all := s.v.r.Workers.List()
		for _, part := range a.step.accepted {
			if part.r != nil && part.r.Origin == model.OriginPart && part.r.Parent == s.v.uid && !a.continues(part) {
				all = append(all, part.r.Workers.List()...)
			}
		}
		slices.SortFunc(all, model.WorkerID.Compare)
		if s.v.leased != 0 || !slices.Equal(all, s.before.List()) {
			a.violate(RuleImmutable, "%s changed its workers: %d instead of %d, without a part for the others", s.v,
				s.v.r.Workers.Len(), s.before.Len())
		}
	}
}

// checkOrigins checks each accepted reservation that has a parent against the state of the
// parent before this revision.
func (a *Auditor) checkOrigins() {
	for _, v := range a.step.accepted {
		if v.r == nil || v.r.State != model.Queued || v.r.Parent == "" {
			continue
		}
		parent := a.versions[v.r.Parent]
		switch {
		case a.continues(v):
			// checkOrigins already checked the version that v replaces, and v has no
			// other workers. The parent of a round may be deleted since.
		case parent == nil || parent.r == nil || parent.key != v.key:
			a.violate(RuleOrigin, "%s has parent %s, which is not a version of it", v, v.r.Parent)
		case v.r.Origin == model.OriginRequeue:
			a.checkRequeue(v, parent)
		case v.r.Origin == model.OriginPart && v.r.Round == parent.r.Round:
			if v.r.Place != parent.r.Place || rankOf(v.r).order != rankOf(parent.r).order {
				a.violate(RuleOrigin, "%s does not have the queue position of %s, which it is a part of", v, parent)
			}
		default:
			a.checkRound(v, parent)
		}
	}
	for worker, at := range a.step.requeues {
		at.requeued = max(at.requeued, worker.ID.Number)
	}
}

// continues reports whether v replaces another version of the same parent: this revision
// ended the other version, and v has the same workers or fewer.
func (a *Auditor) continues(v *version) bool {
	return slices.ContainsFunc(a.step.touched, func(old *version) bool {
		return old != v && old.r != nil && old.r.State == model.Replaced && old.key == v.key &&
			old.r.Parent == v.r.Parent && old.r.Round == v.r.Round && v.r.Workers.SubsetOf(old.r.Workers)
	})
}

// checkRequeue checks that the version which gave up the workers of a requeue has not ended
// and is the parent or another requeue of the parent, that no worker was requeued before, and
// that each gets an unused number. This revision must record the requeue in the version that
// gave up the worker; a requeue without earlier numbers is of an older version of Berth, which
// does not record it.
func (a *Auditor) checkRequeue(v, parent *version) {
	for workerID := range v.r.Workers.All() {
		failed := model.WorkerID{Index: workerID.Index, Number: workerID.Number - 1}
		records := len(v.r.Earlier) > 0
		if records {
			failed.Number = v.r.Earlier[len(v.r.Earlier)-1].Last
		}
		at, worker := a.index(v, workerID.Index), model.Worker{Job: v.key.Job, Stage: v.key.Stage, ID: workerID}
		from := a.requeueWith(failed, parent)
		was := from.before()
		if was == nil || was.State.Terminal() || was.State == model.Cancelling || v.r.Round != was.Round+1 {
			a.violate(RuleOrigin, "%s, of round %d, requeues workers of %s, which is %s", v, v.r.Round, from, from.state())
			return
		}
		w, found := from.assignment(failed)
		switch {
		case !found || !w.Requeue || !requeues(was.Spec, w) || was.Unwanted.Has(failed):
			a.violate(RuleOrigin, "%s requeues worker %s of %s, which was not given up: %s", v, failed, from,
				stateOf(&w))
		case at.requeued >= workerID.Number, a.step.requeues[worker] != nil, was.Requeued.Has(failed):
			a.violate(RuleOrigin, "%s requeues worker %s of %s a second time", v, failed, from)
		case records && !from.r.Requeued.Has(failed):
			a.violate(RuleOrigin, "%s requeues worker %s of %s, which does not record it", v, failed, from)
		case workerID.Number <= failed.Number, !a.isUnused(v, workerID):
			a.violate(RuleOrigin, "%s requeues worker %s of %s as %s, which was used before", v, failed, from, workerID)
		default:
			a.checkRestart(v, was, w)
			a.derives(v, from)
		}
		a.step.requeues[worker] = at
	}
}

// requeues reports whether a reservation may queue a worker again that ended in this way. The
// reason of a worker that could not be started says so, also if it is LOST.
func requeues(s model.Spec, w model.TaskWorker) bool {
	if notStarted(w) && (w.State == model.WorkerFailed || w.State == model.WorkerLost) &&
		s.OnFailure != model.OnFailureNotify {
		return true
	}
	switch w.State {
	case model.WorkerCompleted:
		return s.Restart == model.RestartAlways && s.RestartsExit(w.ExitCode)
	case model.WorkerFailed:
		if w.Reason == fault.ReasonCellWorkerLost || w.Reason == fault.ReasonExecutorDraining {
			return s.OnWorkerLoss == model.OnLossReplace
		}
		restarts := s.Restart == model.RestartAlways ||
			(s.Restart == model.RestartOnFailure || s.OnWorkerFailure == model.OnFailedRestart) && !notStarted(w)
		return restarts && s.RestartsExit(w.ExitCode)
	case model.WorkerLost:
		return s.OnWorkerLoss == model.OnLossReplace
	case model.WorkerEvicted:
		return s.OnWorkerLoss == model.OnLossReplace &&
			(w.Reason == fault.ReasonExecutorDraining || w.Reason == fault.ReasonStopped)
	}
	return false
}

// notStarted reports whether no attempt has started a worker.
func notStarted(w model.TaskWorker) bool {
	return w.Reason == fault.ReasonAttemptsExhausted || w.Reason == fault.ReasonExecutorRefuses
}

// moves reports whether a worker ended because its executor was lost or drained, or stopped it
// without a request, after it could be started.
func moves(w model.TaskWorker) bool {
	switch w.State {
	case model.WorkerLost:
		return w.Reason == fault.ReasonExecutorLost || w.Reason == fault.ReasonNotReported ||
			w.Reason == fault.ReasonQuarantineCleared || w.Reason == fault.ReasonExecutorSilent
	case model.WorkerEvicted:
		return w.Reason == fault.ReasonExecutorDraining || w.Reason == fault.ReasonStopped
	}
	return w.State == model.WorkerFailed && (w.Reason == fault.ReasonExecutorDraining ||
		w.Reason == fault.ReasonCellWorkerLost && !w.RunningSince.IsZero())
}

// loses reports whether a worker of the version was LOST, or lost by its cell while it was RUNNING.
func (v *version) loses() bool {
	for _, chunk := range v.tasks {
		for _, w := range chunk.Workers {
			inCell := w.State == model.WorkerFailed && w.Reason == fault.ReasonCellWorkerLost && moves(w)
			if w.State == model.WorkerLost || inCell {
				return true
			}
		}
	}
	return false
}

// beginsAnew reports whether the failures of a version begin anew, because it has another task than
// the version from which it derives.
func beginsAnew(next, was *model.Reservation) bool {
	return next.Failures == 0 && (was.Latest != nil || !reflect.DeepEqual(next.Spec.Task, was.Spec.Task))
}

// checkRestart checks the number of failures in a row of a requeue, its limit, and the time
// at which it enters its queue. All are compared with the records of the version in which the
// worker ended. A move is no failure. An older version of Berth, which does not store Granted,
// counts moves and inherits the failures of a gang to start.
func (a *Auditor) checkRestart(v *version, was *model.Reservation, w model.TaskWorker) {
	moved, failures := moves(w), was.Failures
	if was.Origin != model.OriginRequeue || !w.RunningSince.IsZero() &&
		w.Since.Sub(w.RunningSince) >= model.StableAfter {
		failures = 0
	}
	counted := failures
	var entry time.Time
	if !moved {
		counted++
		if delay := model.RestartDelay(counted); delay > 0 && was.Spec.TracksRunning() {
			entry = w.Since.Time().Add(delay)
		}
	}
	if beginsAnew(v.r, was) {
		counted, entry = 0, time.Time{}
	}
	older := !v.r.Granted && (moved || was.Failures > failures)
	switch {
	case v.r.Failures != counted && !older:
		a.violate(RuleOrigin, "%s has %d failures in a row, after %d", v, v.r.Failures, failures)
	case !moved && !(w.State == model.WorkerLost && was.Spec.OnWorkerLoss == model.OnLossReplace) &&
		was.Spec.Restart != model.RestartAlways && failures >= was.Spec.RestartLimit():
		a.violate(RuleOrigin, "%s is requeued %d times in a row, more often than allowed", v, v.r.Failures)
	case !v.r.NotBefore.Equal(entry) && !older:
		a.violate(RuleOrigin, "%s enters its queue at %v, not at %v", v, v.r.NotBefore, entry)
	}
}

// requeueWith returns the requeue of the parent to which a worker was assigned, or the
// parent if there is none.
func (a *Auditor) requeueWith(workerID model.WorkerID, parent *version) *version {
	for _, v := range a.versions {
		if v.requeueOf(parent) {
			if _, found := v.assignment(workerID); found {
				return v
			}
		}
	}
	return parent
}

// requeueOf reports whether v requeues workers of parent.
func (v *version) requeueOf(parent *version) bool {
	return v.key == parent.key && v.r != nil && v.r.Origin == model.OriginRequeue && v.r.Parent == parent.uid
}

// roundMoves reports whether a batch was withdrawn only because workers moved. A worker that failed
// after the withdrawal did not cause it. If a worker was LOST, others may have failed because of that.
func (v *version) roundMoves() bool {
	if v.loses() {
		return true
	}
	moved := false
	for _, chunk := range v.tasks {
		for _, w := range chunk.Workers {
			again := w.State == model.WorkerCompleted && v.r.Spec.Restart == model.RestartAlways
			failed := w.State == model.WorkerFailed && w.Reason != fault.ReasonNotTogether
			if !moves(w) && (again || failed || w.State == model.WorkerLost) {
				return false
			}
			moved = moved || moves(w)
		}
	}
	return moved
}

// checkRound checks that a batch starts another round only when the previous round ends, which
// was withdrawn, and after its lease is released, except for workers that may still start. It checks
// the number of rounds that failed, unless an older version of Berth counts all.
func (a *Auditor) checkRound(v, parent *version) {
	if parent.header != nil && parent.header.Restarts() {
		a.checkRestartedGang(v, parent)
		return
	}
	was := parent.before()
	ended := was != nil && !was.State.Terminal() && parent.r.State == model.Replaced &&
		parent.header != nil && parent.header.Withdrawn && parent.leaseOver()
	raised := v.r.Round == parent.r.Round+1
	for workerID := range v.r.Workers.All() {
		before, asked := parent.r.Workers.Number(workerID.Index)
		raised = raised && asked && workerID.Number > before && a.isUnused(v, workerID)
	}
	moved := v.r.Place != parent.r.Place && reflect.DeepEqual(v.r.Spec.Constraints, parent.r.Spec.Constraints)
	if !ended || !raised || moved {
		a.violate(RuleOrigin, "%s is another round of %s, which is %s", v, parent, parent.state())
		return
	}
	failures := was.Failures
	if !parent.roundMoves() {
		failures++
	}
	if beginsAnew(v.r, was) {
		failures = 0
	}
	switch {
	case !v.r.Granted:
	case v.r.Failures != failures:
		a.violate(RuleOrigin, "%s has %d failed rounds, after %d", v, v.r.Failures, was.Failures)
	case failures > was.Failures && failures >= was.Requested().MaxAttempts:
		a.violate(RuleOrigin, "%s is another round after %d that failed, more than allowed", v, failures)
	}
	a.derives(v, parent)
}

// checkNextRound checks what a worker has in the next round of its gang: it keeps its volume, and was not
// live for its lifetime.
func (a *Auditor) checkNextRound(v, from *version, w model.TaskWorker) {
	switch {
	case (v.r.Spec.Volume == nil) != (from.before().Spec.Volume == nil):
		a.violate(RuleOrigin, "%s has worker %s of %s, and only one of them has a volume", v, w.ID, from)
	case outlives(from.before().Spec.Lifetime, w):
		a.violate(RuleOrigin, "%s has worker %s of %s, which was live for its lifetime", v, w.ID, from)
	}
}

// checkRestartedGang checks that all workers of a gang are queued again only when all have ended, in all
// versions of the reservation that restart as a gang, each with an unused number. It checks the number of
// rounds in a row that failed, and its limit. A round in which workers only moved, or could not be started,
// did not fail. Nor did one in which a worker was LOST.
func (a *Auditor) checkRestartedGang(v, parent *version) {
	var failures, limit int32
	var first, moved *model.TaskWorker
	lost := false
	earlier := func(w, than *model.TaskWorker) bool {
		return than == nil || cmp.Or(cmp.Compare(w.Since, than.Since), w.ID.Compare(than.ID)) < 0
	}
	for _, o := range a.versions {
		was := o.before()
		if o == v || o.key != v.key || was == nil || was.State.Terminal() || o.header == nil ||
			was.Spec.OnWorkerFailure != model.OnFailedRestart {
			continue
		}
		if !o.workersEnded() {
			a.violate(RuleOrigin, "%s is another round of its gang beside workers of %s, which is %s", v, o, o.state())
			return
		}
		if was.Origin != model.OriginRequeue {
			failures = max(failures, was.Failures)
		}
		limit = max(limit, was.Spec.RestartLimit())
		lost = lost || o.loses()
		for _, chunk := range o.tasks {
			for i, w := range chunk.Workers {
				byItself := w.State == model.WorkerFailed && !moves(w) && !notStarted(w) && w.Reason != fault.ReasonGangRestarted &&
					w.Reason != fault.ReasonNotTogether && !was.Unwanted.Has(w.ID) && !outlives(was.Spec.Lifetime, w)
				if byItself && earlier(&w, first) {
					first = &chunk.Workers[i]
				}
				if (byItself || moves(w)) && earlier(&w, moved) {
					moved = &chunk.Workers[i]
				}
				if number, again := v.r.Workers.Number(w.ID.Index); again && number > w.ID.Number {
					a.checkNextRound(v, o, w)
				}
			}
		}
	}
	switch {
	case first != nil && !lost:
		if first.Stable() {
			failures = 0
		}
		failures++
	case moved != nil && moved.Stable():
		failures = 0
	}
	was := parent.before()
	if was != nil && beginsAnew(v.r, was) {
		failures = 0
	}
	unused := true
	for workerID := range v.r.Workers.All() {
		unused = unused && a.isUnused(v, workerID)
	}
	switch {
	case was == nil || was.State.Terminal() || parent.r.State != model.Replaced || !parent.leaseOver() ||
		v.r.Round <= was.Round:
		a.violate(RuleOrigin, "%s is another round of %s, which is %s", v, parent, parent.state())
	case !unused:
		a.violate(RuleOrigin, "%s is another round of %s, with numbers that were used before", v, parent)
	case v.r.Failures != failures:
		a.violate(RuleOrigin, "%s has %d failed rounds, not %d", v, v.r.Failures, failures)
	case first != nil && !lost && failures > limit:
		a.violate(RuleOrigin, "%s is another round after %d that failed, more than allowed", v, failures)
	default:
		a.derives(v, parent)
	}
}

// outlives reports whether a worker was RUNNING for its lifetime.
func outlives(l model.Lifetime, w model.TaskWorker) bool {
	return l.From == model.FromLive && !w.RunningSince.IsZero() && w.Since.Sub(w.RunningSince) >= l.For
}
