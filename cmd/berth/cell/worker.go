package cell

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
)

// worker is a worker that the parent started. It is its agent.Handle. Driver.mu guards its
// fields, except spec, ready and ended, which do not change.
type worker struct {
	hold  *hold
	spec  agent.Spec
	ready func()
	ended func(agent.Exit)
	// stop is set once the parent has requested to stop the worker, and stopped once the child
	// has received this. grace is the shortest time to end that the parent requested, and
	// stoppedWithin is the one that the child has received.
	stop, stopped        bool
	grace, stoppedWithin time.Duration
	// returned is set once Start has returned. err is the error that it must return.
	returned bool
	err      error
	// host is the host that was reported to the parent.
	host string
	// isReady is set once ready was called, and over once ended was called or will be.
	isReady, over bool
}

// Stop implements agent.Handle. The child stops the worker with the grace period of its task, or
// with a shorter one if the parent requests it.
func (w *worker) Stop(grace time.Duration, _ bool) error {
	w.hold.driver.mu.Lock()
	defer w.hold.driver.mu.Unlock()
	if !w.stop || grace < w.grace {
		w.grace = grace
	}
	w.stop = true
	w.hold.notify()
	return nil
}

// Signal implements agent.Signaller. The child sends the signal to its worker, with the same request
// ID.
func (w *worker) Signal(ctx context.Context, signal model.Signal, requestID string) error {
	h, index := w.hold, w.spec.Worker.ID.Index
	h.driver.mu.Lock()
	number, over := h.numbers[index], w.over
	h.driver.mu.Unlock()
	if over {
		return fault.New(fault.NotFound, fault.ReasonNotFound, "the worker has ended")
	}
	answer, err := h.driver.cfg.Child.SignalWorkers(ctx, &berthv1.SignalWorkersRequest{Job: h.key.Job, Stage: h.key.Stage,
		Workers: []*berthv1.WorkerID{{Index: index, Number: number}}, Signal: string(signal), RequestId: requestID})
	if err != nil {
		return refused(fault.Of(err).Reason, fault.Of(err).Message)
	}
	for _, f := range answer.GetFailed() {
		return refused(fault.Reason(f.GetReason()), f.GetMessage())
	}
	return nil
}

// refused returns the error of a signal that the child has not sent, or has perhaps not sent.
func refused(reason fault.Reason, why string) error {
	kind := fault.Unavailable
	switch reason {
	case fault.ReasonNotFound:
		kind = fault.NotFound
	case fault.ReasonUnsupported:
		kind = fault.Precondition
	}
	return fault.New(kind, reason, "in the cell: %s", why)
}

// Forget implements agent.Handle. The child forgets its reservation by itself.
func (w *worker) Forget() {}

// work binds the child's reservation once a worker was started, and follows its workers.
func (h *hold) work(in input) time.Duration {
	again := h.giveMembers()
	if !h.bound {
		if h.binding == nil && h.giveUp() {
			return 0
		}
		switch err := h.bind(in); {
		case err == nil && !h.bound:
			return 0 // the workers may have been stopped meanwhile
		case err != nil && fault.Of(err).Kind == fault.Unavailable:
			h.log.Warn("the reservation of the child is not bound yet", "reservation", h.key, "error", err)
			return retryAfter
		case err != nil:
			h.log.Error("the workers are not started", "reservation", h.key, "error", err)
			h.fail(err)
			return 0
		}
		close(h.outcome)
		h.log.Info("bound the reservation of the child", "reservation", h.key)
	}
	h.followPlaces()
	if pause, over := h.follow(); !over || in.offer != nil && wanted(in.offer) || !in.listed {
		return min(pause, again)
	}
	h.drop()
	return 0
}

// giveUp drops what the child keeps if the parent has stopped all workers that it started, and
// reports whether it did. The bind must not have been sent: then no worker runs.
func (h *hold) giveUp() bool {
	h.driver.mu.Lock()
	for _, w := range h.workers {
		if !w.over && !w.stop {
			h.driver.mu.Unlock()
			return false
		}
	}
	h.dropLocked()
	h.driver.mu.Unlock()
	h.log.Info("the workers were stopped before they were started", "reservation", h.key)
	h.end(h.started(), func(*worker) agent.Exit { return agent.Exit{Stopped: true} })
	return true
}

// fail drops what the child keeps because the bind failed. That is an error of every Start that
// waits, and the end of the other workers.
func (h *hold) fail(err error) {
	f := fault.Of(err)
	refusal := fault.New(fault.Conflict, fault.ReasonNotHeld, "the cell could not bind the reservation: %s", f.Message)
	if f.Kind != fault.Conflict && f.Kind != fault.NotFound {
		// The assigner must not take a reason such as PERMISSION_DENIED for one of the agent.
		refusal = fault.New(fault.Precondition, fault.ReasonStartFailed, "%s", refusal.Message)
	}
	h.driver.mu.Lock()
	h.dropLocked()
	for _, w := range h.workers {
		if !w.returned && !w.over {
			w.over, w.err = true, refusal
		}
	}
	close(h.outcome)
	h.driver.mu.Unlock()
	h.end(h.started(), func(w *worker) agent.Exit {
		x := lost(refusal.Message)
		if w.stop {
			x.Reason, x.Stopped = "", true
		}
		return x
	})
}

// end ends some workers that have not ended, each as exit says.
func (h *hold) end(indexes []int32, exit func(w *worker) agent.Exit) {
	var calls []func()
	h.driver.mu.Lock()
	for _, index := range indexes {
		if w := h.workers[index]; w != nil && !w.over {
			w.over = true
			x := exit(w)
			calls = append(calls, func() { w.ended(x) })
		}
	}
	h.driver.mu.Unlock()
	for _, call := range calls {
		call() // it may wait for a call of the agent to this driver
	}
}

// started returns the indexes of the workers that the parent started.
func (h *hold) started() []int32 {
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	return slices.Collect(maps.Keys(h.workers))
}

// childWorkers returns the child's workers for the reservation.
func (h *hold) childWorkers(job *client.Job) []client.Worker {
	var list []client.Worker
	for _, w := range job.Workers(h.key.Stage) {
		if w.Name == h.uid && h.numbers[w.Index] == w.Number {
			list = append(list, w)
		}
	}
	return list
}

// follow reports to the parent what became of the workers, and stops those that must not run in
// the child. It returns the pause before it must be called again, and reports whether all
// workers that the parent started have ended.
func (h *hold) follow() (pause time.Duration, over bool) {
	d, now := h.driver, time.Now()
	stops := map[time.Duration][]*berthv1.WorkerID{}
	var calls []func()
	d.mu.Lock()
	w := d.watches[h.key.Job]
	if w == nil || w.state == nil {
		d.mu.Unlock()
		return forever, false
	}
	pause, over = forever, true
	known, ended, idle := map[int32]bool{}, false, h.lastStart.Add(d.cfg.StartWithin)
	for _, one := range h.childWorkers(w.state) {
		started := h.workers[one.Index]
		known[one.Index] = !one.Ended || one.State != berthv1.Assignment_STATE_UNSPECIFIED
		switch {
		case started == nil && !one.Ended && now.Before(idle):
			pause = min(pause, idle.Sub(now))
		case started == nil && !one.Ended && one.State < berthv1.Assignment_EVICT:
			stops[ownGrace] = append(stops[ownGrace], &berthv1.WorkerID{Index: one.Index, Number: one.Number})
		case started == nil || started.over || !known[one.Index]:
		case one.Ended:
			x := exitOf(one, started.stop)
			started.over, ended = true, true
			calls = append(calls, func() { started.ended(x) })
		default:
			if one.State == berthv1.Assignment_RUNNING && !started.isReady {
				started.isReady = true
				calls = append(calls, started.ready)
			}
			if started.stop && (!started.stopped || started.grace < started.stoppedWithin) {
				within := ownGrace
				if started.grace < started.spec.Grace {
					within = started.grace
				}
				stops[within] = append(stops[within], &berthv1.WorkerID{Index: one.Index, Number: one.Number})
			}
		}
	}
	var missing []int32
	for index, one := range h.workers {
		over = over && one.over
		if !one.over && !known[index] {
			missing = append(missing, index)
		}
	}
	d.mu.Unlock()
	for _, call := range calls {
		call()
	}
	if ended {
		d.freed()
	}
	for within, ids := range stops {
		if !h.stop(within, ids) {
			pause = min(pause, retryAfter)
		}
	}
	if len(missing) > 0 || !h.rechecked {
		pause = min(pause, h.verify(now, missing))
	}
	return pause, over
}

// ownGrace stands for the grace period of the task.
const ownGrace = time.Duration(-1)

// stop removes workers from the child's reservation, and reports whether it did. A child of an
// older version ignores the shorter time to end.
func (h *hold) stop(within time.Duration, ids []*berthv1.WorkerID) bool {
	ctx, cancel := h.driver.call()
	defer cancel()
	grace := &within
	if within == ownGrace {
		grace = nil
	}
	if _, _, err := h.driver.cfg.Child.CancelWorkersWith(ctx, h.key.Job, h.key.Stage, grace, ids...); err != nil {
		h.log.Warn("workers of the child are not stopped yet", "reservation", h.key, "error", err)
		return false
	}
	h.driver.mu.Lock()
	defer h.driver.mu.Unlock()
	for _, id := range ids {
		if w := h.workers[id.GetIndex()]; w != nil {
			w.stopped, w.stoppedWithin = true, w.spec.Grace
			if within != ownGrace {
				w.stoppedWithin = within
			}
		}
	}
	return true
}

// verify reads the bound reservation: once some time after the bind, and as long as the end of
// some workers is missing. It removes an expireAt that a late call of an earlier agent has
// stored. It returns the pause before the next call.
func (h *hold) verify(now time.Time, missing []int32) time.Duration {
	h.driver.mu.Lock()
	due := h.lastStart.Add(h.driver.cfg.TTL / 3)
	h.driver.mu.Unlock()
	if len(missing) == 0 && now.Before(due) {
		return due.Sub(now)
	}
	r, err := h.read()
	switch {
	case fault.Is(err, fault.ReasonNotFound):
		err = nil
		h.end(missing, func(*worker) agent.Exit { return lost("the child has no record of the worker") })
	case err == nil && client.Ended(r.GetState()):
		ends := h.ends(r, missing)
		h.end(missing, func(w *worker) agent.Exit { return exitOf(ends[w.spec.Worker.ID.Index], w.stop) })
	case err == nil:
		left := map[int32]bool{}
		for _, w := range r.GetWorkers() {
			left[w.GetIndex()] = true
		}
		missing = slices.DeleteFunc(missing, func(index int32) bool { return left[index] })
		h.end(missing, func(w *worker) agent.Exit { return exitOf(client.Worker{Ended: true}, w.stop) })
		if r.GetExpireAt() != nil {
			h.driver.mu.Lock()
			h.version = r
			h.driver.mu.Unlock()
			err = h.extend(time.Time{})
		}
	}
	switch {
	case err != nil:
		h.log.Debug("the reservation of the child is not verified yet", "reservation", h.key, "error", err)
		return retryAfter
	case now.Before(due):
		return min(retryAfter, due.Sub(now))
	}
	h.rechecked = true
	return retryAfter
}

// ends returns how workers of a reservation that has ended did: the child deletes their records
// soon, but keeps the events. A worker whose end is not known has no state.
func (h *hold) ends(r *berthv1.Reservation, missing []int32) map[int32]client.Worker {
	ends := map[int32]client.Worker{}
	if int(r.GetWorkerCounts()[berthv1.Assignment_COMPLETED.String()]) == h.origin.workers.Len() {
		for _, index := range missing {
			ends[index] = client.Worker{State: berthv1.Assignment_COMPLETED}
		}
		return ends
	}
	child, done := h.driver.reader(h.key.Job)
	if child == nil {
		return ends
	}
	defer done()
	ctx, cancel := context.WithTimeout(h.driver.life, callWithin)
	defer cancel()
	for event := range child.Events(ctx, h.key.Job, "") { //nolint:errcheck // then the ends are not known
		if event.GetStage() != h.key.Stage || event.GetReservation() != h.key.Name {
			continue
		}
		for _, w := range event.GetWorkers() {
			if h.numbers[w.GetIndex()] == w.GetNumber() && w.GetState() >= berthv1.Assignment_COMPLETED {
				ends[w.GetIndex()] = client.Worker{State: w.GetState(), ExitCode: w.ExitCode, Executor: w.GetExecutor(),
					Reason: w.GetReason(), Message: w.GetMessage(), Ended: true}
			}
		}
		if !slices.ContainsFunc(missing, func(index int32) bool { return ends[index].State == 0 }) {
			break
		}
	}
	return ends
}

// exitOf returns how a worker ended whose end the child shows. stop is set if the parent
// requested to stop the worker.
func exitOf(w client.Worker, stop bool) agent.Exit {
	message := cmp.Or(w.Message, w.Reason)
	switch w.State {
	case berthv1.Assignment_COMPLETED:
		code := int32(0)
		return agent.Exit{Code: &code}
	case berthv1.Assignment_FAILED:
		// The child counts the failures of its executors itself. They are no faults of the cell.
		x := agent.Exit{Code: w.ExitCode, Problem: message, BadTask: true}
		if w.Reason == string(fault.ReasonStartTimeout) {
			x.Reason = fault.ReasonStartTimeout
		}
		if w.Reason == string(fault.ReasonKilled) && w.ExitCode != nil && *w.ExitCode > 128 {
			x.Signal = *w.ExitCode - 128
		}
		return x
	case berthv1.Assignment_LOST:
		return lost("the child lost the worker on " + w.Executor + ": " + message)
	}
	if stop {
		return agent.Exit{Code: w.ExitCode, Stopped: true}
	}
	if w.State == berthv1.Assignment_EVICTED {
		return lost("the child stopped the worker on " + w.Executor + ": " + message)
	}
	return lost("the child gave the worker up: " + message)
}

// lost returns the end of a worker that ended because of the child.
func lost(message string) agent.Exit {
	return agent.Exit{Reason: fault.ReasonCellWorkerLost, Problem: message}
}
