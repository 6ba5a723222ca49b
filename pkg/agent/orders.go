package agent

import (
	"context"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// replace has a worker make room for a later epoch of its name. The lock is let
// go of meanwhile.
func (a *Agent) replace(id identity) {
	if s := a.starting[id]; s != nil {
		a.withdraw(s, fault.New(fault.Conflict, fault.ReasonLowerEpoch, "a later epoch of %s was ordered", id.Worker))
	}
	w := a.workers[id]
	if w == nil {
		return
	}
	a.mu.Unlock()
	_ = a.order(id, w, w.grace) // logged; the order that waits for it is repeated
	a.mu.Lock()
}

// StopTask stops a worker. The answer shows EVICTING while it still ends, or an
// end: then it does not run and never will.
func (a *Agent) StopTask(ctx context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	if err := a.permit(req.GetNonce()); err != nil {
		return nil, err
	}
	id, err := identityOf(req.GetWorker())
	if err != nil {
		return nil, err
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	defer a.orders.Done()
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		e, err := a.ledger.stop(req.GetTerm(), req.GetIncarnation(), id)
		switch s := a.starting[id]; {
		case err != nil:
			return nil, err
		case e == nil:
			return a.forbid(id, req.GetWorker().GetUid())
		case s != nil:
			if err := a.cutShort(ctx, s); err != nil {
				return nil, err
			}
			continue
		}
		if w := a.workers[id]; w != nil && !e.state.Terminal() {
			grace := w.grace
			if req.GetGrace() != nil {
				grace = max(0, req.GetGrace().AsDuration())
			}
			a.mu.Unlock()
			err := a.order(id, w, grace)
			a.mu.Lock()
			if err != nil {
				return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s could not be told to end", id.Worker).Because(err)
			}
		}
		if e.state == model.WorkerStarting {
			return nil, notDurable(id, nil) // It was never begun, and its end is held back.
		}
		return &controlv1.StopTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}, nil
	}
}

// forbid promises that a worker which is not there is never started. The lock is
// held.
func (a *Agent) forbid(id identity, uid string) (*controlv1.StopTaskAnswer, error) {
	t := tombstone{id, a.now()}
	if !a.ledger.buriedFor(id) {
		// Durable before it counts: what is not on disk is not promised. The room
		// that is taken for the ends of workers is left to them.
		if err := a.journal.reserve(a.ledger.living+1, a.ledger.buried); err != nil {
			return nil, notDurable(id, err)
		}
		if err := a.journal.append(t, a.ledger.buried); err != nil {
			return nil, notDurable(id, err)
		}
		a.ledger.bury(t)
	}
	return &controlv1.StopTaskAnswer{Worker: buriedReport(t, uid), Sequence: a.ledger.next()}, nil
}

// cutShort withdraws a start, or waits for one that has begun. The lock is let go
// of meanwhile.
func (a *Agent) cutShort(ctx context.Context, s *start) error {
	worker := s.spec.Worker
	if a.withdraw(s, fault.New(fault.Conflict, fault.ReasonStopped, "%s was stopped before it was started", worker)) {
		return nil
	}
	a.mu.Unlock()
	defer a.mu.Lock()
	select {
	case <-s.settled:
		return nil
	case <-ctx.Done():
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s is being started", worker).Because(ctx.Err())
	}
}

func notDurable(id identity, err error) error {
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the stop of %s is not durable", id.Worker).Because(err)
}

// order tells a worker to end.
func (a *Agent) order(id identity, w *worker, grace time.Duration) error {
	if err := w.handle.Stop(grace); err != nil {
		a.log.Error("worker not told to end", "worker", id.Worker, "epoch", id.Epoch, "error", err)
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger.evicting(id, a.now()) {
		a.log.Info("worker told to end", "worker", id.Worker, "epoch", id.Epoch, "grace", grace)
		a.tell()
	}
	return nil
}

// permit refuses an order without the nonce of the registration, before anything else
// of it is looked at.
func (a *Agent) permit(nonce string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.permit(nonce)
}

// enter counts an order, unless the agent is closed.
func (a *Agent) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return a.ends()
	}
	a.orders.Add(1)
	return nil
}

// ends is the refusal of an agent that takes no workers any more.
func (a *Agent) ends() error {
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the agent of %s ends", a.cfg.ID)
}

// identityOf refuses names that could not stand in a path.
func identityOf(ref *controlv1.WorkerRef) (identity, error) {
	switch {
	case ref == nil:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker", "is required")
	case !model.ValidName(ref.GetJob(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.job", "%q is not a name", ref.GetJob())
	case !model.ValidName(ref.GetStage(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.stage", "%q is not a name", ref.GetStage())
	case ref.GetIndex() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.index", "is negative")
	case ref.GetNumber() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.number", "is negative")
	case ref.GetEpoch() <= 0:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker.epoch", "is required")
	}
	workerID := model.WorkerID{Index: ref.GetIndex(), Number: ref.GetNumber()}
	return identity{model.Worker{Job: ref.GetJob(), Stage: ref.GetStage(), ID: workerID}, ref.GetEpoch()}, nil
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
