package internal

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/transport"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// The limits of signals. They keep signals from delaying start and stop requests.
const (
	// maxSignalled is the maximum number of workers that get a signal in one call.
	maxSignalled = 10_000
	// maxSignalCalls is the maximum number of calls of clients in progress.
	maxSignalCalls = 64
	// maxSignalRequests is the maximum number of requests to agents in flight.
	maxSignalRequests = 128
	// signalTimeout is the maximum time for the answer of an agent.
	signalTimeout = 3 * time.Second
	// signalReserve is the time before the deadline of a call at which its last requests end, so
	// that the caller gets the answer.
	signalReserve = time.Second
	// maxSignalFailures is the maximum number of failures in an answer.
	maxSignalFailures = 256
)

// signals sends signals to workers.
type signals struct {
	loop   loop.Owner[*dispatch.Core]
	agents *Sender
	// calls and requests count the calls of clients in progress, and the requests in flight.
	calls, requests chan struct{}
}

func newSignals(l loop.Owner[*dispatch.Core], agents *Sender) *signals {
	return &signals{l, agents, make(chan struct{}, maxSignalCalls), make(chan struct{}, maxSignalRequests)}
}

// send sends a signal to workers of a stage.
func (s *signals) send(ctx context.Context, req *berthv1.SignalWorkersRequest) (*berthv1.SignalWorkersAnswer, error) {
	if err := checkSignal(req); err != nil {
		return nil, err
	}
	signal, err := wire.SignalOf("signal", req.GetSignal())
	if err != nil {
		return nil, err
	}
	if s.agents == nil {
		return nil, fault.New(fault.Precondition, fault.ReasonUnsupported, "this cluster has no agents that send signals")
	}
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		return nil, fault.New(fault.Unavailable, fault.ReasonOverloaded, "the assigner sends %d signals, its maximum",
			maxSignalCalls)
	}
	if deadline, has := ctx.Deadline(); has {
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-signalReserve))
		defer cancel()
	}
	named := make([]model.WorkerID, len(req.GetWorkers()))
	for i, w := range req.GetWorkers() {
		named[i] = model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}
	}
	var targets []dispatch.SignalTarget
	if err := s.loop.Read(ctx, true, func(c *dispatch.Core) {
		targets = c.Signal(req.GetJob(), req.GetStage(), named)
	}); err != nil {
		return nil, err
	}
	if len(targets) > maxSignalled {
		return nil, fault.BadField(fault.ReasonTooLarge, "workers", "must name at most %d workers, because %s/%s has %d that are RUNNING",
			maxSignalled, req.GetJob(), req.GetStage(), len(targets))
	}
	s.sendAll(ctx, targets, &controlv1.SignalTaskRequest{Signal: string(signal),
		RequestId: cmp.Or(req.GetRequestId(), rand.Text())})
	return signalAnswer(targets), nil
}

// checkSignal returns an error that names the first invalid field of a request.
func checkSignal(req *berthv1.SignalWorkersRequest) error {
	id, workers := req.GetRequestId(), req.GetWorkers()
	switch {
	case !model.ValidName(req.GetJob(), 128):
		return fault.BadField(fault.ReasonBadName, "job", "%q is not a name", req.GetJob())
	case !model.ValidName(req.GetStage(), 128):
		return fault.BadField(fault.ReasonBadName, "stage", "%q is not a name", req.GetStage())
	case id != "" && !model.ValidName(id, 128):
		return fault.BadField(fault.ReasonBadName, "requestId", "%q is not a name", id)
	case len(workers) > maxSignalled:
		return fault.BadField(fault.ReasonTooLarge, "workers", "must be at most %d, got %d", maxSignalled, len(workers))
	case req.GetSignal() == "":
		return fault.BadField(fault.ReasonRequired, "signal", "name the signal, such as USR1")
	}
	for i, w := range workers {
		switch {
		case w.GetIndex() < 0:
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].index", i), "must not be negative, got %d",
				w.GetIndex())
		case w.GetNumber() < 0:
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("workers[%d].number", i), "must not be negative, got %d",
				w.GetNumber())
		}
	}
	return nil
}

// sendAll sends a signal to the targets without an error, and sets the errors of those that may
// not have got it.
func (s *signals) sendAll(ctx context.Context, targets []dispatch.SignalTarget, request *controlv1.SignalTaskRequest) {
	var sent sync.WaitGroup
	defer sent.Wait()
	for i := range targets {
		target := &targets[i]
		if target.Err != nil {
			continue
		}
		select {
		case s.requests <- struct{}{}:
			sent.Go(func() {
				target.Err = s.agents.signal(ctx, target.Request, request)
				<-s.requests
			})
		case <-ctx.Done():
			target.Err = unsignalled(target.Executor, "the deadline of the call has passed before the signal was sent")
		}
	}
}

// signal sends a signal to a worker. request has the signal and its ID.
func (s *Sender) signal(ctx context.Context, to dispatch.Request, request *controlv1.SignalTaskRequest) error {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	agent, done, err := s.connect(to.Address, false)
	if err != nil {
		return unsignalled(to.Executor, err.Error())
	}
	defer done()
	_, err = agent.client.SignalTask(transport.ToExecutors(ctx, to.Executor), &controlv1.SignalTaskRequest{
		Term: to.Term, Executor: to.Executor, Incarnation: to.Incarnation, Nonce: string(to.Nonce), Worker: workerRef(to),
		Signal: request.GetSignal(), RequestId: request.GetRequestId(),
	})
	if err == nil {
		return nil
	}
	f := rpc.FromStatus(err)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fault.New(fault.Precondition, fault.ReasonUnsupported,
			"the agent of %s is of an older version, which sends no signals", to.Executor)
	case f.Reason == fault.ReasonNotFound, f.Reason == fault.ReasonUnsupported:
		return &fault.Error{Kind: f.Kind, Reason: f.Reason, Message: f.Message}
	}
	return unsignalled(to.Executor, f.Message)
}

func unsignalled(executor, why string) error {
	return fault.New(fault.Unavailable, fault.ReasonExecutorUnreachable,
		"the agent of %s has not confirmed the signal: %s", executor, why)
}

func signalAnswer(targets []dispatch.SignalTarget) *berthv1.SignalWorkersAnswer {
	answer := &berthv1.SignalWorkersAnswer{}
	for _, target := range targets {
		if target.Err == nil {
			answer.Signalled++
			continue
		}
		if answer.FailedCount++; answer.FailedCount <= maxSignalFailures {
			f, id := fault.Of(target.Err), target.Worker.ID
			answer.Failed = append(answer.Failed, &berthv1.UnsignalledWorker{
				Worker: &berthv1.WorkerID{Index: id.Index, Number: id.Number}, Executor: target.Executor, Reason: string(f.Reason),
				Message: f.Message,
			})
		}
	}
	return answer
}
