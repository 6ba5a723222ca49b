package agent

import (
	"context"

	controlv1 "berth.dev/api/berth/control/v1"
)

// SubmitTask starts a worker, or answers how it stands if it was ordered before.
// Workers are started a few at a time, in order: the answer shows STARTING when
// it takes a while, and what came of it is reported then. Errors are
// *fault.Error; only an Unavailable one leaves open whether the worker runs.
func (a *Agent) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	prompt, cancel := context.WithTimeout(ctx, a.cfg.promptly)
	defer cancel()
	s, err := a.begin(req)
	if err != nil {
		return nil, err
	}
	return s.answer(ctx, prompt.Done())
}

// submission is an order to start that was taken, until it is answered.
type submission struct {
	agent *Agent
	entry *entry
	start *start // nil when nothing is being started any more
}

// begin takes an order to start, or refuses it. What it answers is to be
// answered.
func (a *Agent) begin(req *controlv1.SubmitTaskRequest) (s *submission, err error) {
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
	defer func() {
		if err != nil {
			a.orders.Done()
		}
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending {
		return nil, a.ends()
	}
	e, fresh, older, err := a.ledger.submit(req.GetTerm(), req.GetIncarnation(), id, req.GetWorker().GetUid(), a.now())
	if older != nil {
		a.replace(older.identity)
	}
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := a.enqueue(specOf(a.cfg.ID, id, req)); err != nil {
			a.ledger.startFailed(id)
			return nil, err
		}
	}
	s = &submission{a, e, a.starting[id]}
	if s.start != nil {
		s.start.awaited++
	}
	return s, nil
}

// answer waits until the start is over, or until it is no longer prompt.
func (s *submission) answer(ctx context.Context, late <-chan struct{}) (*controlv1.SubmitTaskAnswer, error) {
	a := s.agent
	defer a.orders.Done()
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.start != nil {
		if err := a.awaitStart(ctx, late, s.start); err != nil {
			return nil, err
		}
	}
	return &controlv1.SubmitTaskAnswer{Worker: s.entry.wire(), Sequence: a.ledger.next()}, nil
}
