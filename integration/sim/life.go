package sim

import (
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// drawLife draws when a reservation and its workers begin and end, and which workers are
// restarted or replaced.
func (w *World) drawLife(s *model.Spec) {
	seconds := func(n int) time.Duration { return time.Duration(1+w.rng.IntN(n)) * time.Second }
	if w.rng.IntN(4) == 0 {
		s.ExpireAt = w.now.Add(seconds(40))
	}
	if w.rng.IntN(4) == 0 {
		s.NotBefore = w.now.Add(seconds(20))
	}
	switch w.rng.IntN(6) {
	case 0:
		s.Lifetime = model.Lifetime{For: seconds(30), From: model.FromCreated}
	case 1:
		s.Lifetime = model.Lifetime{For: seconds(30), From: model.FromLive}
	}
	if s.Lifetime.From == model.FromCreated && !s.NotBefore.Before(w.now.Add(s.Lifetime.For)) {
		// The registry rejects a reservation that ends before it begins, but accepts a late copy of
		// the request, whose lifetime begins later.
		s.NotBefore = time.Time{}
	}
	s.Restart = model.Restart(w.rng.IntN(3))
	s.OnWorkerLoss = model.OnWorkerLoss(w.rng.IntN(2))
	s.OnWorkerFailure = model.OnWorkerFailure(w.rng.IntN(3))
	if s.OnWorkerFailure == model.OnFailedRestart {
		s.Restart = min(s.Restart, model.RestartOnFailure)
	}
	if s.Restart != model.RestartNever && w.rng.IntN(4) == 0 {
		s.ExitCodes = &model.ExitCodes{Fail: []int32{1}}
		if w.rng.IntN(2) == 0 {
			s.ExitCodes = &model.ExitCodes{Retry: []int32{0, 1}}
		}
	}
	if w.rng.IntN(2) == 0 {
		limit := int32(w.rng.IntN(4))
		s.MaxRestarts = &limit
	}
	s.Requeue = model.Requeue(w.rng.IntN(2))
	if w.rng.IntN(4) == 0 {
		s.Task.StopSignal = "SIGINT"
	}
}

// delayed reports whether a reservation waits for its time to enter its queue, or matching
// skips an executor that fails starts. Both end by themselves.
func (w *World) delayed() bool {
	for _, n := range w.replicas[model.ServiceExecutorState] {
		if e, ok := n.(*node[*inventory.Core]); ok && e.leads() && slices.ContainsFunc(e.driver.Core.Findings(w.now),
			func(f inventory.Finding) bool { return f.Kind == inventory.FindingFailsStarts }) {
			return true
		}
	}
	if !w.lives && !w.seams.enabled {
		return false
	}
	for _, record := range w.records(model.KindReservation) {
		if r := record.(*model.Reservation); r.State == model.Queued && r.NotBefore.After(w.now) {
			return true
		}
	}
	return false
}

// checkLives checks that at rest nothing lives past its expiry or its lifetime, and that every
// worker was restarted that its reservation always restarts.
func (w *World) checkLives() {
	if !w.lives {
		return
	}
	versions := map[string]*model.Reservation{}
	for _, record := range w.records(model.KindReservation) {
		r := record.(*model.Reservation)
		versions[r.UID] = r
		if at := r.ExpiresAt(); !r.State.Terminal() && !at.IsZero() && !at.After(w.now) {
			w.fail("at rest: %s (%s) is %s past its expiry at %v", r.Key, r.UID, r.State, at)
		}
	}
	for _, record := range w.records(model.KindTaskHeader) {
		h := record.(*model.TaskHeader)
		if r := versions[h.UID]; r != nil && !r.State.Terminal() && h.Withdrawn {
			w.fail("at rest: %s (%s) is withdrawn and not queued again", r.Key, r.UID)
		}
	}
	for _, record := range w.records(model.KindTaskChunk) {
		chunk := record.(*model.TaskChunk)
		r := versions[chunk.UID]
		w.checkGang(r, chunk)
		for _, tw := range chunk.Workers {
			if r != nil && r.Spec.Lifetime.From == model.FromLive && tw.State == model.WorkerRunning &&
				!tw.RunningSince.Time().Add(r.Spec.Lifetime.For).After(w.now) {
				w.fail("at rest: %s of %s runs past its lifetime", tw.ID, r.Key)
			}
		}
	}
	w.checkAlways()
}

// checkGang checks at rest that no reservation runs on whose workers have decided its end: with FAIL_GANG
// one that has FAILED, and otherwise the one with which it completes.
func (w *World) checkGang(r *model.Reservation, chunk *model.TaskChunk) {
	if r == nil || r.State.Terminal() {
		return
	}
	for _, tw := range chunk.Workers {
		over := tw.Requeue || tw.Moved() || r.Unwanted.Has(tw.ID) || tw.Outlived(r.Spec.Lifetime)
		failed := tw.State == model.WorkerFailed && !over
		switch {
		case failed && r.Spec.OnWorkerFailure == model.OnFailedFail:
			w.fail("at rest: %s (%s) runs on with the failed worker %s", r.Key, r.UID, tw.ID)
		case len(r.Spec.CompletesWith) == 1 && r.Spec.CompletesWith[0] == tw.ID.Index && !r.Unwanted.Has(tw.ID) &&
			!tw.Requeue && (tw.State == model.WorkerCompleted || failed) && !r.Requeued.Has(tw.ID) && w.isNewest(r, tw.ID):
			w.fail("at rest: %s (%s) runs on without worker %s, with which it completes", r.Key, r.UID, tw.ID)
		}
	}
}

// isNewest reports whether no other version of a reservation has a later worker of an index.
func (w *World) isNewest(r *model.Reservation, id model.WorkerID) bool {
	for _, record := range w.records(model.KindReservation) {
		o := record.(*model.Reservation)
		if number, _ := o.Workers.Number(id.Index); o.Key == r.Key && number > id.Number {
			return false
		}
	}
	return true
}

// checkAlways checks in the history that every worker was marked that ended by itself while
// its reservation, which always restarts its workers, wanted it. A gang that starts together
// restarts single workers only after all have run. A worker may end in the step that stops it, because
// its executor is drained.
func (w *World) checkAlways() {
	type worker struct {
		uid string
		id  model.WorkerID
	}
	versions := map[string]*model.Reservation{}
	states := map[worker]model.WorkerState{}
	draining := map[uint32]bool{}
	for _, r := range w.store.History() {
		for _, change := range r.Changes {
			ref, ok := w.space.Parse(change.Key)
			if !ok || change.Deleted || !slices.Contains([]model.Kind{model.KindReservation, model.KindTaskChunk,
				model.KindExecutor}, ref.Kind) {
				continue
			}
			record, err := wire.Decode(ref, change.Value, change.Create, change.Mod, change.Lease)
			if err != nil {
				w.fail("%v", err)
				return
			}
			switch record := record.(type) {
			case *model.Reservation:
				versions[record.UID] = record
			case *model.Executor:
				draining[record.Ordinal] = record.Draining
			case *model.TaskChunk:
				for _, tw := range record.Workers {
					k := worker{record.UID, tw.ID}
					before := states[k]
					states[k] = tw.State
					if before.Terminal() || !tw.State.Terminal() {
						continue
					}
					if v := versions[record.UID]; mustRestart(v, before, tw) && !draining[tw.Ordinal] {
						w.fail("%s of %s (%s) ended %s %s at %v and is not restarted", tw.ID, v.Key, v.UID, tw.State, tw.Reason,
							tw.Since.Time())
					}
				}
			}
		}
	}
}

// mustRestart reports whether a worker that ends must be marked and is not.
func mustRestart(v *model.Reservation, before model.WorkerState, tw model.TaskWorker) bool {
	byItself := tw.State == model.WorkerCompleted ||
		tw.State == model.WorkerFailed && tw.Reason != fault.ReasonExecutorRefuses
	outlived := v != nil && v.Spec.Lifetime.From == model.FromLive && !tw.RunningSince.IsZero() &&
		tw.Since.Sub(tw.RunningSince) >= v.Spec.Lifetime.For
	return v != nil && v.Spec.Restart == model.RestartAlways && v.Spec.Start != model.StartTogether &&
		(v.State == model.Queued || v.State == model.Active) && !v.Unwanted.Has(tw.ID) &&
		before < model.WorkerEvict && byItself && v.Spec.RestartsExit(tw.ExitCode) && !outlived && !tw.Requeue
}
