package agent

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Signaller is a [Handle] of a worker that can get signals.
type Signaller interface {
	// Signal sends a signal to the worker's own process. A repeat with the same request ID has no
	// effect, also by another agent; the worker remembers the last 256 IDs. If Signal returns nil,
	// the worker gets the signal, unless it ends first. Errors are *fault.Error. After an error of
	// kind Unavailable the worker may get the signal; after any other error it does not.
	Signal(ctx context.Context, signal model.Signal, requestID string) error
}

// maxRequestID is the maximum length of a request ID.
const maxRequestID = 128

// SignalTask sends a signal to a worker that is RUNNING. Errors are *fault.Error. After an error
// of kind Unavailable the worker may get the signal; after any other error it does not.
func (a *Agent) SignalTask(ctx context.Context, req *controlv1.SignalTaskRequest) (*controlv1.SignalTaskAnswer, error) {
	id, worker, err := a.signalled(req)
	if err != nil {
		return nil, err
	}
	defer a.requests.Done()
	signal, known := model.ParseSignal(req.GetSignal())
	if !known {
		return nil, fault.BadField(fault.ReasonUnsupported, "signal", "%q is not known to the agent of %s", req.GetSignal(),
			a.cfg.ID)
	}
	if !model.ValidName(req.GetRequestId(), maxRequestID) {
		return nil, fault.BadField(fault.ReasonBadName, "requestId", "%q is not a request ID", req.GetRequestId())
	}
	to, ok := worker.handle.(Signaller)
	if !ok {
		return nil, fault.New(fault.Precondition, fault.ReasonUnsupported, "executor %s cannot send signals to its workers",
			a.cfg.ID)
	}
	if err := to.Signal(ctx, signal, req.GetRequestId()); err != nil {
		return nil, err
	}
	a.log.Info("signal sent to worker", "worker", id.Worker, "epoch", id.Epoch, "signal", signal)
	return &controlv1.SignalTaskAnswer{}, nil
}

// signalled returns the worker of a request, and counts the request. The caller must call
// a.requests.Done if signalled succeeds.
func (a *Agent) signalled(req *controlv1.SignalTaskRequest) (identity, *worker, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id, err := a.permit(req.GetNonce(), req.GetWorker())
	if err != nil {
		return id, nil, err
	}
	if err := a.ledger.admit(req.GetTerm(), req.GetIncarnation()); err != nil {
		return id, nil, err
	}
	e, w := a.ledger.entries[id], a.workers[id]
	if e == nil || w == nil || e.state != model.WorkerRunning {
		return id, nil, notRunning(id.Worker, a.cfg.ID)
	}
	a.requests.Add(1)
	return id, w, nil
}

func notRunning(w model.Worker, executor string) error {
	return fault.New(fault.NotFound, fault.ReasonNotFound, "%s is not RUNNING on %s", w, executor)
}

// signalWord begins a line in the control pipe that requests a signal. Its name and the request
// ID follow.
const signalWord = "signal "

// Signal implements Signaller. It writes the request to the keeper's pipe. The keeper knows the
// IDs for as long as the worker runs.
func (k *keptWorker) Signal(_ context.Context, signal model.Signal, requestID string) error {
	if !k.signals {
		return fault.New(fault.Precondition, fault.ReasonUnsupported,
			"the worker was started by an agent of an older version, whose workers get no signals")
	}
	err := k.request(signalWord + string(signal) + " " + requestID + "\n")
	switch {
	case errors.Is(err, errNoKeeper):
		return fault.New(fault.NotFound, fault.ReasonNotFound, "the worker has exited")
	case err != nil: // The pipe takes a line as a whole or not at all.
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the worker could not be signalled").Because(err)
	}
	return nil
}

// deliver sends a signal to the worker's own process, unless the process has exited or has got the
// signal of this request.
func (k *keeper) deliver(request string) {
	name, id, _ := strings.Cut(request, " ")
	n := unix.SignalNum(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if n == 0 || k.exited || k.over || !k.delivered.add(id) {
		return
	}
	// wait reaps the process only later, so the ID still belongs to it.
	_ = unix.Kill(k.group, n)
}

// keptRequestIDs is the number of the last request IDs of signals that a worker remembers.
const keptRequestIDs = 256

// requestIDs are the last request IDs of signals.
type requestIDs struct {
	list []string
	// next is the place of the next ID once the list is full.
	next int
}

// add adds an ID, and reports whether it is new.
func (r *requestIDs) add(id string) bool {
	if slices.Contains(r.list, id) {
		return false
	}
	if len(r.list) < keptRequestIDs {
		r.list = append(r.list, id)
		return true
	}
	r.list[r.next] = id
	r.next = (r.next + 1) % keptRequestIDs
	return true
}

// Signal implements Signaller. SIGINT, SIGKILL, SIGQUIT and SIGTERM end the worker, and it ignores
// every other signal.
func (w *simulated) Signal(_ context.Context, signal model.Signal, requestID string) error {
	w.mu.Lock()
	over, fresh := w.ended == nil, w.signals.add(requestID)
	w.mu.Unlock()
	switch {
	case over:
		return fault.New(fault.NotFound, fault.ReasonNotFound, "the worker has exited")
	case !fresh:
		return nil
	}
	switch n := unix.SignalNum(string(signal)); n {
	case unix.SIGINT, unix.SIGKILL, unix.SIGQUIT, unix.SIGTERM:
		x := exitOf(128+int32(n), false)
		x.Signal, x.Problem = int32(n), describe(128+int32(n), int32(n))
		w.end(x)
	}
	return nil
}
