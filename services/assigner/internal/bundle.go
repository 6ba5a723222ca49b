package internal

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/transport"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// maxPerExecutor is the maximum number of start requests to one executor in one call. It is
// a fraction of the default limit of requests in flight to one executor, so that further
// requests arrive while an agent starts the workers of a call.
const maxPerExecutor = 16

// bundle has the start requests of one reservation that are sent in one call.
type bundle []dispatch.Submit

// executors returns the executors of the requests.
func (b bundle) executors() []string {
	list := make([]string, len(b))
	for i, a := range b {
		list[i] = a.Executor
	}
	return slices.Compact(list)
}

// bundles groups start requests by reservation and address. The requests keep their order.
func bundles(submits []dispatch.Submit) []bundle {
	type key struct {
		address, uid string
		fresh        bool
	}
	type executorKey struct {
		key
		executor string
	}
	var all []bundle
	open, counts := map[key]int{}, map[executorKey]int{}
	for _, a := range submits {
		k := key{a.Address, a.UID, a.Fresh}
		e := executorKey{k, a.Executor}
		i, found := open[k]
		if !found || counts[e] == maxPerExecutor || len(all[i]) == wire.MaxStartRequests {
			i = len(all)
			all = append(all, nil)
			open[k], counts[e] = i, 0
		}
		all[i] = append(all[i], a)
		counts[e]++
	}
	return all
}

// sendSubmits sends the start requests of the current round.
func (s *Sender) sendSubmits(t *loop.Term) {
	for _, b := range bundles(s.submits) {
		t.Go(b.peer(), b.done(b.all(panicked)), func(ctx context.Context) {
			t.Post(b.done(s.submitAll(ctx, b)))
		})
	}
	s.submits = nil
}

// panicked is the outcome of a request if the code that handles its answer panics.
var panicked = dispatch.Unknown{Message: "the handling of the agent's answer panicked"}

// peer returns a text that names the executors of a bundle.
func (b bundle) peer() string {
	first, last := b[0].Executor, b[len(b)-1].Executor
	if first == last {
		return "executor " + first
	}
	return "executors " + first + " to " + last + " at " + b[0].Address
}

// all returns the same outcome for every request of a bundle.
func (b bundle) all(outcome any) []any { return slices.Repeat([]any{outcome}, len(b)) }

func (b bundle) done(outcomes []any) dispatch.SubmitsDone {
	done := make(dispatch.SubmitsDone, len(b))
	for i, a := range b {
		done[i] = a.Done(outcomes[i])
	}
	return done
}

// submitAll sends a bundle, and returns the outcome of each request.
func (s *Sender) submitAll(ctx context.Context, b bundle) []any {
	first := b[0]
	ctx, cancel := context.WithTimeout(tracing.With(ctx, first.Trace), first.Timeout)
	defer cancel()
	agent, done, err := s.connect(first.Address, first.Fresh)
	if err != nil {
		return b.all(dispatch.Undelivered{Message: err.Error()})
	}
	defer done()
	if len(b) == 1 {
		return []any{s.submit(ctx, agent, first)}
	}
	ctx, d := trackDelivery(ctx)
	answer, err := agent.client.SubmitTasks(transport.ToExecutors(ctx, b.executors()...), submitTasks(b))
	if status.Code(err) == codes.Unauthenticated {
		// The process that answers is not the agent of one of the executors, and received
		// nothing. The others must not suffer from the address of that one.
		outcomes := make([]any, len(b))
		for i, a := range b {
			outcomes[i] = s.submit(ctx, agent, a)
		}
		return outcomes
	}
	if err != nil {
		return b.all(d.undelivered(s.failed(ctx, first, err)))
	}
	answers, err := outcomesOf(len(b), answer)
	if err != nil {
		return b.all(invalid(err))
	}
	outcomes := make([]any, len(b))
	for i, a := range b {
		outcomes[i] = startOf(a, answers[i])
	}
	return outcomes
}

func submitTasks(b bundle) *controlv1.SubmitTasksRequest {
	a := b[0]
	req := &controlv1.SubmitTasksRequest{
		Term: a.Term, Job: a.Worker.Job, Stage: a.Worker.Stage, Epoch: a.Epoch, Uid: a.UID, Task: wire.Task(*a.Task),
		Reservation: a.Reservation, Workers: a.Workers,
		Orders: make([]*controlv1.SubmitOrder, len(b)),
	}
	for i, a := range b {
		req.Orders[i] = &controlv1.SubmitOrder{
			Executor: a.Executor, Incarnation: a.Incarnation, Index: a.Worker.ID.Index, Number: a.Worker.ID.Number,
			Attempt: a.Attempt, Nonce: string(a.Nonce), Volume: volumeStart(a.Volume),
		}
	}
	return req
}

func volumeStart(v *dispatch.VolumeStart) *controlv1.VolumeStart {
	if v == nil {
		return nil
	}
	return &controlv1.VolumeStart{Id: v.ID, Create: v.Create}
}

// submit sends one start request in a separate call.
func (s *Sender) submit(ctx context.Context, agent *connection, a dispatch.Submit) any {
	ctx, d := trackDelivery(ctx)
	answer, err := agent.client.SubmitTask(transport.ToExecutors(ctx, a.Executor), &controlv1.SubmitTaskRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Worker: workerRef(a.Request),
		Task: wire.Task(*a.Task), Attempt: a.Attempt, Nonce: string(a.Nonce), Reservation: a.Reservation, Workers: a.Workers,
		Volume: volumeStart(a.Volume),
	})
	if err != nil {
		return d.undelivered(s.failed(ctx, a, err))
	}
	return acceptedOf(a, answer.GetSequence(), answer.GetWorker())
}

// failed returns the outcome of a start request whose call failed.
func (s *Sender) failed(ctx context.Context, a dispatch.Submit, err error) any {
	s.log.DebugContext(ctx, "a start request failed", "worker", a.Worker, "executor", a.Executor, "attempt", a.Attempt,
		"error", rpc.FromStatus(err))
	return failureOf(err)
}
