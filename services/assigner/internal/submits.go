package internal

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpc"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/handout"
)

// ordersAtOnce is how many orders to one executor go in one call. It is a part of
// what is under way to one by default: while an agent starts some workers, the
// next ones are there.
const ordersAtOnce = 16

// parcel is orders to start workers of one reservation that go in one call.
type parcel []handout.Submit

// parcels puts orders together that go to one address for one reservation. They
// keep their order.
func parcels(orders []handout.Submit) []parcel {
	type to struct {
		address, uid string
		fresh        bool
	}
	type load struct {
		to
		executor string
	}
	var all []parcel
	open, loads := map[to]int{}, map[load]int{}
	for _, a := range orders {
		key := to{a.Address, a.UID, a.Fresh}
		one := load{key, a.Executor}
		i, found := open[key]
		if !found || loads[one] == ordersAtOnce {
			i = len(all)
			all = append(all, nil)
			open[key], loads[one] = i, 0
		}
		all[i] = append(all[i], a)
		loads[one]++
	}
	return all
}

// sendGathered sends the orders to start workers that a round has made.
func (o *Orders) sendGathered(t *loop.Term) {
	for _, p := range parcels(o.gathered) {
		t.Go(func(ctx context.Context) {
			outcomes := o.submitAll(ctx, p)
			told := make(handout.SubmitsDone, len(p))
			for i, a := range p {
				told[i] = done(a, outcomes[i])
			}
			t.Post(told)
		})
	}
	o.gathered = nil
}

func done(a handout.Submit, outcome any) handout.SubmitDone {
	return handout.SubmitDone{Executor: a.Executor, UID: a.UID, Seat: a.Worker.Seat, Attempt: a.Attempt, Outcome: outcome}
}

// submitAll sends a parcel, and answers what came of each order.
func (o *Orders) submitAll(ctx context.Context, p parcel) []any {
	outcomes := make([]any, len(p))
	all := func(outcome any) []any {
		for i := range outcomes {
			outcomes[i] = outcome
		}
		return outcomes
	}
	first := p[0]
	ctx, cancel := context.WithTimeout(tracing.With(ctx, first.Trace), first.Timeout)
	defer cancel()
	agent, done, err := o.agent(first.Address, first.Fresh)
	if err != nil {
		return all(handout.Unknown{Message: err.Error()})
	}
	defer done()
	if len(p) > 1 && !agent.singly.Load() {
		answer, err := agent.client.SubmitTasks(ctx, submitTasks(p))
		switch {
		case status.Code(err) == codes.Unimplemented:
			agent.singly.Store(true)
		case err != nil:
			return all(o.failed(ctx, first, err))
		case len(answer.GetOutcomes()) != len(p):
			return all(handout.Unknown{Message: "the answer is not to what was asked"})
		default:
			for i, a := range p {
				outcomes[i] = o.outcome(ctx, a, answer.GetOutcomes()[i])
			}
			return outcomes
		}
	}
	var calls sync.WaitGroup
	for i, a := range p {
		calls.Go(func() { outcomes[i] = o.submit(ctx, agent, a) })
	}
	calls.Wait()
	return outcomes
}

func submitTasks(p parcel) *controlv1.SubmitTasksRequest {
	a := p[0]
	req := &controlv1.SubmitTasksRequest{
		Term: a.Term, Job: a.Worker.Job, Stage: a.Worker.Stage, Epoch: a.Epoch, Uid: a.UID, Task: wire.Task(a.Task),
		Orders: make([]*controlv1.SubmitOrder, len(p)),
	}
	for i, a := range p {
		req.Orders[i] = &controlv1.SubmitOrder{
			Executor: a.Executor, Incarnation: a.Incarnation, Index: a.Worker.Seat.Index, Number: a.Worker.Seat.Number, Attempt: a.Attempt,
		}
	}
	return req
}

// outcome reads what came of one order of a parcel.
func (o *Orders) outcome(ctx context.Context, a handout.Submit, m *controlv1.SubmitOutcome) any {
	if len(m.GetFailure()) > 0 {
		return o.failed(ctx, a, rpc.Unpack(m.GetFailure()))
	}
	return handout.Accepted{
		State: model.WorkerState(m.GetState()), Incarnation: a.Incarnation, Sequence: m.GetSequence(),
		ExitCode: m.ExitCode, Error: m.GetError(),
	}
}

// submit sends one order by itself.
func (o *Orders) submit(ctx context.Context, agent *line, a handout.Submit) any {
	answer, err := agent.client.SubmitTask(ctx, &controlv1.SubmitTaskRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Worker: worker(a.Worker, a.Epoch, a.UID),
		Task: wire.Task(a.Task), Attempt: a.Attempt,
	})
	if err != nil {
		return o.failed(ctx, a, err)
	}
	w := answer.GetWorker()
	return handout.Accepted{
		State: model.WorkerState(w.GetState()), Incarnation: a.Incarnation, Sequence: answer.GetSequence(),
		ExitCode: w.ExitCode, Error: w.GetError(),
	}
}

// failed reads what an order has failed with.
func (o *Orders) failed(ctx context.Context, a handout.Submit, err error) any {
	f := rpc.FromStatus(err)
	o.log.DebugContext(ctx, "a submit failed", "worker", a.Worker, "executor", a.Executor, "attempt", a.Attempt, "error", f)
	if definite(f) {
		return handout.Refused{Reason: f.Reason, Message: f.Message}
	}
	return handout.Unknown{Message: f.Message}
}

// definite says whether the agent itself refused. What gRPC says in its place,
// an agent in trouble, or another program at its address that does not know the
// call, leaves open whether the order was taken.
func definite(f *fault.Error) bool {
	if f.Reason == fault.ReasonUnsupported {
		return false
	}
	return f.Kind == fault.Invalid || f.Kind == fault.Precondition || f.Kind == fault.Conflict
}
