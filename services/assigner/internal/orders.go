// Package internal is the shell of the assigner: its orders to agents and its
// gRPC face.
package internal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpcstats"
	"berth.dev/pkg/tracing"
	"berth.dev/services/assigner/dispatch"
)

// idleAgents is how long a connection to an agent is kept without a call.
const idleAgents = time.Minute

// Orders carries orders to agents, each once: whether to repeat it is the
// core's to decide. What goes to agents is not encrypted.
type Orders struct {
	traces *tracing.Tracing
	log    *slog.Logger

	// gathered are the orders to start workers of the round being carried out:
	// the loop's alone.
	gathered []dispatch.Submit

	mu    sync.Mutex
	lines map[string]*line // by address
	swept time.Time
}

// line is a connection to an agent.
type line struct {
	conn   *grpc.ClientConn
	client controlv1.ExecutorClient
	calls  int       // under way
	used   time.Time // when the last call ended
	// dropped: another line has its place, and its last call closes it.
	dropped bool
}

// NewOrders makes the carrier. Orders of a reservation that is traced are spans
// of its trace.
func NewOrders(traces *tracing.Tracing, log *slog.Logger) *Orders {
	return &Orders{traces: traces, log: log, lines: map[string]*line{}, swept: time.Now()}
}

// Close closes all connections. No order is under way any more.
func (o *Orders) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for address, l := range o.lines {
		l.conn.Close()
		delete(o.lines, address)
	}
}

// agent answers a connection to an address, to be given back with done. A fresh
// one replaces what is there: a poisoned connection must not serve every retry.
// What other orders are under way on the old one are not cut off by that.
func (o *Orders) agent(address string, fresh bool) (l *line, done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweep()
	l = o.lines[address]
	if l != nil && fresh {
		l.dropped = true
		if l.calls == 0 {
			l.conn.Close()
		}
		l = nil
	}
	if l == nil {
		conn, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(idleAgents), grpc.WithDisableRetry(),
			rpc.RefuseCompressed(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.PublicMessageLimit)),
			grpc.WithStatsHandler(rpcstats.Client(nil, o.traces.Provider())))
		if err != nil {
			return nil, nil, err
		}
		l = &line{conn: conn, client: controlv1.NewExecutorClient(conn)}
		o.lines[address] = l
	}
	l.calls++
	return l, func() { o.done(l) }, nil
}

func (o *Orders) done(l *line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.used = time.Now()
	if l.calls--; l.calls == 0 && l.dropped {
		l.conn.Close()
	}
}

// sweep closes, now and then, what was not used for a while: agents come and go,
// and their addresses with them.
func (o *Orders) sweep() {
	now := time.Now()
	if now.Sub(o.swept) < idleAgents {
		return
	}
	o.swept = now
	for address, l := range o.lines {
		if l.calls == 0 && now.Sub(l.used) >= idleAgents {
			l.conn.Close()
			delete(o.lines, address)
		}
	}
}

// Perform implements loop.Config.
func (o *Orders) Perform(t *loop.Term, core *dispatch.Core, action model.Action) {
	switch a := action.(type) {
	case dispatch.Submit:
		if o.gathered == nil {
			t.After(func() { o.sendGathered(t) })
		}
		// What was decided after it, a cancel say, may have taken it back.
		if core.Stands(a) {
			o.gathered = append(o.gathered, a)
		} else {
			unsent := a.Done(dispatch.NotSent{})
			t.Go("executor "+a.Executor, unsent, func(context.Context) { t.Post(unsent) })
		}
	case dispatch.Stop:
		t.Go("executor "+a.Executor, a.Done(panicked), func(ctx context.Context) { t.Post(a.Done(o.stop(ctx, a))) })
	default:
		panic(fmt.Sprintf("assigner: unknown action %T", action))
	}
}

func (o *Orders) stop(ctx context.Context, a dispatch.Stop) any {
	ctx, cancel := context.WithTimeout(tracing.With(ctx, a.Trace), a.Timeout)
	defer cancel()
	agent, done, err := o.agent(a.Address, a.Fresh)
	if err != nil {
		return dispatch.Unknown{Message: err.Error()}
	}
	defer done()
	answer, err := agent.client.StopTask(ctx, &controlv1.StopTaskRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Worker: worker(a.Worker, a.Epoch, a.UID),
		Grace: durationpb.New(a.Grace), Nonce: string(a.Nonce),
	})
	if err != nil {
		return refusalOf(rpc.FromStatus(err))
	}
	return stopOf(answer)
}

func worker(w model.Worker, epoch int64, uid string) *controlv1.WorkerRef {
	return &controlv1.WorkerRef{Job: w.Job, Stage: w.Stage, Index: w.ID.Index, Number: w.ID.Number, Epoch: epoch, Uid: uid}
}
