package agent

import (
	"context"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// SubmitTask starts a worker. If the worker was requested before, SubmitTask returns its
// state. The agent starts at most Config.Starts workers at a time, in the order of the
// requests. If the start takes longer than a second, the answer shows STARTING and a
// later report contains the result. Errors are *fault.Error. After an error of kind
// Unavailable the worker may run; after any other error it does not run.
func (a *Agent) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	waiting, cancel := context.WithTimeout(ctx, a.cfg.startWait)
	defer cancel()
	s, err := a.accept(req)
	if err != nil {
		return nil, err
	}
	return s.answer(ctx, waiting.Done())
}

// submission is an accepted start request that has no answer yet.
type submission struct {
	agent *Agent
	entry *entry
	start *start // nil if no start is queued or in progress
}

// accept accepts a start request, or returns an error. If it succeeds, the caller must
// call answer on the submission.
func (a *Agent) accept(req *controlv1.SubmitTaskRequest) (*submission, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := a.permit(req.GetNonce(), req.GetWorker())
	if err != nil {
		return nil, err
	}
	if a.ending {
		return nil, a.errEnding()
	}
	volume, err := a.volumeOf(req.GetVolume())
	if err != nil {
		return nil, err
	}
	e, fresh, older, err := a.ledger.submit(req.GetTerm(), req.GetIncarnation(), id, req.GetWorker().GetUid(), a.cfg.now())
	if older != nil {
		a.replace(older.identity)
	}
	if err != nil {
		return nil, err
	}
	if fresh {
		spec := specOf(a.cfg.ID, id, req)
		spec.Volume = volume
		if spec.cell = a.cfg.Cell != nil; spec.cell { // a cell applies its own default
			spec.StartLimit = min(max(0, req.GetTask().GetStartTimeout().AsDuration()), model.MaxStartTimeout)
		}
		if err := a.enqueue(spec); err != nil {
			a.ledger.startFailed(id)
			return nil, err
		}
	}
	s := &submission{a, e, a.starting[id]}
	if s.start != nil {
		s.start.awaited++
	}
	a.requests.Add(1)
	return s, nil
}

// answer waits until the start has a result, or until late is closed. If late is closed
// first, the answer shows STARTING and the start counts as acknowledged.
func (s *submission) answer(ctx context.Context, late <-chan struct{}) (*controlv1.SubmitTaskAnswer, error) {
	a := s.agent
	defer a.requests.Done()
	if s.start != nil {
		select {
		case <-s.start.settled:
		case <-late:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.start != nil {
		s.start.awaited--
		select {
		case <-s.start.settled:
			if s.start.err != nil {
				return nil, s.start.err
			}
		default:
			if ctx.Err() != nil {
				return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "the worker is being started").Because(ctx.Err())
			}
			s.start.acknowledged = true
			a.ledger.acknowledged(s.start.spec.identity())
		}
	}
	return &controlv1.SubmitTaskAnswer{Worker: s.entry.wire(), Sequence: a.ledger.next()}, nil
}

// replace stops a worker because a request has a later epoch of its name. The control
// plane repeats that request. a.mu must be locked.
func (a *Agent) replace(id identity) {
	if s := a.starting[id]; s != nil {
		if !a.withdraw(s, fault.New(fault.Conflict, fault.ReasonLowerEpoch, "a later epoch of %s was requested", id.Worker)) {
			s.interrupt()
		}
	}
	if w := a.workers[id]; w != nil {
		a.requests.Go(func() { _ = a.stopWorker(id, w, w.grace) }) // stopWorker logs a failure
	}
}

// StopTask stops a worker. If the worker still runs, the answer shows EVICTING. If the
// answer shows an end, the worker does not run and never will at this epoch.
func (a *Agent) StopTask(ctx context.Context, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := a.permit(req.GetNonce(), req.GetWorker())
	if err != nil {
		return nil, err
	}
	a.requests.Add(1)
	defer a.requests.Done()
	for {
		e, err := a.ledger.stop(req.GetTerm(), req.GetIncarnation(), id)
		switch s := a.starting[id]; {
		case err != nil:
			return nil, err
		case e == nil:
			return a.forbid(id, req.GetWorker().GetUid())
		case s != nil:
			if err := a.cancelStart(ctx, s); err != nil {
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
			err := a.stopWorker(id, w, grace)
			a.mu.Lock()
			if err != nil {
				return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s could not be signalled to stop",
					id.Worker).Because(err)
			}
		}
		if e.state == model.WorkerStarting {
			return nil, notDurable(id, nil) // The withdrawn start never began, and the worker's end is pending.
		}
		return &controlv1.StopTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}, nil
	}
}

// forbid makes a tombstone durable for a worker without an entry, so that the worker is
// never started, and returns the answer to the stop request. a.mu must be locked.
func (a *Agent) forbid(id identity, uid string) (*controlv1.StopTaskAnswer, error) {
	t := tombstone{identity: id, NeverStarted: true, At: a.cfg.now()}
	if !a.ledger.hasTombstone(id) {
		// The tombstone must be durable before the answer. It must not use the disk space that
		// is reserved for the ends of running workers.
		if err := a.journal.reserve(a.ledger.live()+1, a.ledger.tombstones); err != nil {
			return nil, notDurable(id, err)
		}
		if err := a.journal.append(t, a.ledger.tombstones); err != nil {
			return nil, notDurable(id, err)
		}
		a.ledger.bury(t)
	}
	e := entry{identity: id, uid: uid, state: model.WorkerEvicted, launched: !a.ledger.neverStarted(id), since: t.At}
	return &controlv1.StopTaskAnswer{Worker: e.wire(), Sequence: a.ledger.next()}, nil
}

// cancelStart withdraws the start if it is still queued; otherwise it interrupts the start and
// waits for its result. a.mu must be locked; cancelStart unlocks it during the wait.
func (a *Agent) cancelStart(ctx context.Context, s *start) error {
	worker := s.spec.Worker
	if a.withdraw(s, fault.New(fault.Conflict, fault.ReasonStopped, "%s was stopped before it was started", worker)) {
		return nil
	}
	s.interrupt()
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

// stopWorker signals a worker to stop. a.mu must not be locked.
func (a *Agent) stopWorker(id identity, w *worker, grace time.Duration) error {
	if err := w.handle.Stop(grace, false); err != nil {
		a.log.Error("worker not signalled to stop", "worker", id.Worker, "epoch", id.Epoch, "error", err)
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger.evicting(id, a.cfg.now()) {
		a.log.Info("worker signalled to stop", "worker", id.Worker, "epoch", id.Epoch, "grace", grace)
		a.finish(w.start)
		a.notify()
	}
	return nil
}

// permit checks the nonce and the worker of a request. It checks the nonce first, so that
// a sender without the nonce learns nothing from other errors. a.mu must be locked.
func (a *Agent) permit(nonce string, ref *controlv1.WorkerRef) (identity, error) {
	if err := a.ledger.permit(nonce); err != nil {
		return identity{}, err
	}
	id, err := identityOf(ref)
	if err == nil && a.closed {
		err = a.errEnding()
	}
	return id, err
}

// errEnding returns the error of an agent that is shutting down.
func (a *Agent) errEnding() error {
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the agent of %s is shutting down", a.cfg.ID)
}

// identityOf returns the identity in a request. It refuses names that must not be part of
// a path.
func identityOf(ref *controlv1.WorkerRef) (identity, error) {
	switch {
	case ref == nil:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker", "is required")
	case !model.ValidName(ref.GetJob(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.job", "%q is not a name", ref.GetJob())
	case !model.ValidName(ref.GetStage(), 128):
		return identity{}, fault.BadField(fault.ReasonBadName, "worker.stage", "%q is not a name", ref.GetStage())
	case ref.GetIndex() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.index", "must not be negative, got %d", ref.GetIndex())
	case ref.GetNumber() < 0:
		return identity{}, fault.BadField(fault.ReasonInvalid, "worker.number", "must not be negative, got %d",
			ref.GetNumber())
	case ref.GetEpoch() <= 0:
		return identity{}, fault.BadField(fault.ReasonRequired, "worker.epoch", "must be positive, got %d", ref.GetEpoch())
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
	readiness := model.ReadyStarted
	if task.GetReadiness() == berthv1.Readiness_REPORTED {
		readiness = model.ReadyReported
	}
	limit := model.Task{StartTimeout: max(0, task.GetStartTimeout().AsDuration()), Readiness: readiness}.StartLimit()
	return Spec{
		Executor: executor, Worker: id.Worker, Epoch: id.Epoch, UID: req.GetWorker().GetUid(),
		Command: task.GetCommand(), Args: task.GetArgs(), Env: task.GetEnv(), Payload: task.GetPayload(),
		Reservation: req.GetReservation(), Workers: req.GetWorkers(),
		Grace: grace, StopSignal: model.Signal(task.GetStopSignal()), Readiness: readiness,
		StartLimit: min(limit, model.MaxStartTimeout),
	}
}
