package agent

import (
	"context"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// SubmitTask starts a worker, or answers how it stands if it was ordered before.
// Errors are *fault.Error; only an Unavailable one leaves open whether the
// worker runs.
func (a *Agent) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	id, err := identityOf(req.GetWorker())
	if err != nil {
		return nil, err
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	defer a.orders.Done()
	for {
		a.mu.Lock()
		if a.ending {
			a.mu.Unlock()
			return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "the agent of %s ends", a.cfg.ID)
		}
		e, fresh, older, err := a.ledger.submit(req.GetTerm(), req.GetIncarnation(), id, req.GetWorker().GetUid(), time.Now())
		switch {
		case older != nil:
			w := a.workers[older.identity]
			a.mu.Unlock()
			if w != nil {
				a.order(older.identity, w, w.grace)
			}
			return nil, err
		case err != nil:
			a.mu.Unlock()
			return nil, err
		case fresh:
			a.mu.Unlock()
			if err := a.start(specOf(a.cfg.ID, id, req)); err != nil {
				return nil, err
			}
		case e.state != model.WorkerStarting:
			answer := &controlv1.SubmitTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}
			a.mu.Unlock()
			return answer, nil
		default:
			if err := a.await(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// start has the driver start the worker. A caller that goes away does not stop
// it half way.
func (a *Agent) start(spec Spec) error {
	id := spec.identity()
	handle, err := a.cfg.Driver.Start(spec, func(x Exit) { a.ended(id, x) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.ledger.startFailed(id)
		a.log.Warn("worker not started", "worker", id.Worker, "epoch", id.Epoch, "error", err)
	} else {
		if a.ledger.entries[id] == nil {
			handle.Forget() // It ended, and its end was taken, in the meantime.
		} else {
			a.workers[id] = &worker{handle, spec.Grace}
		}
		a.ledger.running(id, time.Now())
		a.log.Info("worker started", "worker", id.Worker, "epoch", id.Epoch)
	}
	a.tell()
	return err
}

// StopTask stops a worker. The answer shows EVICTING while it still ends, or an
// end: then it does not run and never will.
func (a *Agent) StopTask(ctx context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	id, err := identityOf(req.GetWorker())
	if err != nil {
		return nil, err
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	defer a.orders.Done()
	for {
		a.mu.Lock()
		now := time.Now()
		e, err := a.ledger.stop(req.GetTerm(), req.GetIncarnation(), id)
		switch {
		case err != nil:
			a.mu.Unlock()
			return nil, err
		case e == nil:
			defer a.mu.Unlock()
			t := tombstone{id, now}
			if !a.ledger.gone(id) {
				// Durable before it counts: what is not on disk is not promised.
				if err := a.journal.append(t, a.ledger.buried); err != nil {
					return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "the stop of %s is not durable", id.Worker).Because(err)
				}
				a.ledger.bury(t)
			}
			return &controlv1.StopTaskAnswer{Worker: buriedReport(t, req.GetWorker().GetUid()), Sequence: a.ledger.next()}, nil
		case e.state == model.WorkerStarting:
			if err := a.await(ctx); err != nil {
				return nil, err
			}
			continue
		case e.state.Terminal():
			defer a.mu.Unlock()
			return &controlv1.StopTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}, nil
		}
		w := a.workers[id]
		a.mu.Unlock()
		grace := w.grace
		if req.GetGrace() != nil {
			grace = max(0, req.GetGrace().AsDuration())
		}
		if err := a.order(id, w, grace); err != nil {
			return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s could not be told to end", id.Worker).Because(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return &controlv1.StopTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}, nil
	}
}

// order tells a worker to end.
func (a *Agent) order(id identity, w *worker, grace time.Duration) error {
	if err := w.handle.Stop(grace); err != nil {
		a.log.Error("worker not told to end", "worker", id.Worker, "epoch", id.Epoch, "error", err)
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger.evicting(id, time.Now()) {
		a.log.Info("worker told to end", "worker", id.Worker, "epoch", id.Epoch, "grace", grace)
		a.tell()
	}
	return nil
}

// enter counts an order, unless the agent is closed.
func (a *Agent) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the agent of %s ends", a.cfg.ID)
	}
	a.orders.Add(1)
	return nil
}

// await lets go of the lock and waits for the next change of a worker.
func (a *Agent) await(ctx context.Context) error {
	changed := a.changed
	a.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the worker is being started").Because(ctx.Err())
	}
}

// identityOf refuses names that could not stand in a path.
func identityOf(ref *controlv1.WorkerRef) (identity, error) {
	switch {
	case ref == nil:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker", "is required")
	case !validName(ref.GetJob(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.job", "%q is not a name", ref.GetJob())
	case !validName(ref.GetStage(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.stage", "%q is not a name", ref.GetStage())
	case ref.GetIndex() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.index", "is negative")
	case ref.GetNumber() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.number", "is negative")
	case ref.GetEpoch() <= 0:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker.epoch", "is required")
	}
	seat := model.Seat{Index: ref.GetIndex(), Number: ref.GetNumber()}
	return identity{model.Worker{Job: ref.GetJob(), Stage: ref.GetStage(), Seat: seat}, ref.GetEpoch()}, nil
}

// validName accepts up to max of [A-Za-z0-9._-], the first alphanumeric.
func validName(name string, max int) bool {
	if name == "" || len(name) > max {
		return false
	}
	for i, c := range []byte(name) {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

func specOf(executor string, id identity, req *controlv1.SubmitTaskRequest) Spec {
	task := req.GetTask()
	grace := defaultGrace
	if task.GetStopGrace() != nil {
		grace = max(0, task.GetStopGrace().AsDuration())
	}
	return Spec{
		Executor: executor, Worker: id.Worker, Epoch: id.Epoch, UID: req.GetWorker().GetUid(),
		Command: task.GetCommand(), Args: task.GetArgs(), Env: task.GetEnv(), Payload: task.GetPayload(),
		Grace: grace,
	}
}
