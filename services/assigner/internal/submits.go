package internal

import (
	"context"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// ordersAtOnce is how many orders to one executor go in one call. It is a part of
// what is under way to one by default: while an agent starts some workers, the
// next ones are there.
const ordersAtOnce = 16

// parcel is orders to start workers of one reservation that go in one call.
type parcel []dispatch.Submit

// parcels puts orders together that go to one address for one reservation. They
// keep their order.
func parcels(orders []dispatch.Submit) []parcel {
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
		if !found || loads[one] == ordersAtOnce || len(all[i]) == wire.MaxStartRequests {
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
		t.Go(p.peer(), p.done(p.all(panicked)), func(ctx context.Context) {
			t.Post(p.done(o.submitAll(ctx, p)))
		})
	}
	o.gathered = nil
}

// panicked is the outcome of a request whose answer made its handling panic.
var panicked = dispatch.Unknown{Message: "the handling of the agent's answer panicked"}

// peer names the executors that a parcel goes to.
func (p parcel) peer() string {
	first, last := p[0].Executor, p[len(p)-1].Executor
	if first == last {
		return "executor " + first
	}
	return "executors " + first + " to " + last + " at " + p[0].Address
}

// all gives every request of a parcel the same outcome.
func (p parcel) all(outcome any) []any {
	outcomes := make([]any, len(p))
	for i := range outcomes {
		outcomes[i] = outcome
	}
	return outcomes
}

func (p parcel) done(outcomes []any) dispatch.SubmitsDone {
	told := make(dispatch.SubmitsDone, len(p))
	for i, a := range p {
		told[i] = a.Done(outcomes[i])
	}
	return told
}

// submitAll sends a parcel, and answers what came of each order.
func (o *Orders) submitAll(ctx context.Context, p parcel) []any {
	first := p[0]
	ctx, cancel := context.WithTimeout(tracing.With(ctx, first.Trace), first.Timeout)
	defer cancel()
	agent, done, err := o.agent(first.Address, first.Fresh)
	if err != nil {
		return p.all(dispatch.Unknown{Message: err.Error()})
	}
	defer done()
	if len(p) == 1 {
		return []any{o.submit(ctx, agent, first)}
	}
	answer, err := agent.client.SubmitTasks(ctx, submitTasks(p))
	if err != nil {
		return p.all(o.failed(ctx, first, err))
	}
	answers, err := answersOf(len(p), answer)
	if err != nil {
		return p.all(invalid(err))
	}
	outcomes := make([]any, len(p))
	for i, a := range p {
		outcomes[i] = startOf(a, answers[i])
	}
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
			Executor: a.Executor, Incarnation: a.Incarnation, Index: a.Worker.ID.Index, Number: a.Worker.ID.Number, Attempt: a.Attempt, Nonce: string(a.Nonce),
		}
	}
	return req
}

// submit sends one order by itself.
func (o *Orders) submit(ctx context.Context, agent *line, a dispatch.Submit) any {
	answer, err := agent.client.SubmitTask(ctx, &controlv1.SubmitTaskRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Worker: worker(a.Worker, a.Epoch, a.UID),
		Task: wire.Task(a.Task), Attempt: a.Attempt, Nonce: string(a.Nonce),
	})
	if err != nil {
		return o.failed(ctx, a, err)
	}
	return acceptedOf(a, answer.GetSequence(), answer.GetWorker())
}

// failed reads what an order has failed with.
func (o *Orders) failed(ctx context.Context, a dispatch.Submit, err error) any {
	f := rpc.FromStatus(err)
	o.log.DebugContext(ctx, "a submit failed", "worker", a.Worker, "executor", a.Executor, "attempt", a.Attempt, "error", f)
	return refusalOf(f)
}
