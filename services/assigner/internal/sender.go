// Package internal connects the assigner's core with agents and callers, and never
// decides: it sends each request of the core to an agent once, checks every answer before
// the core receives it, and serves the assigner's gRPC services and metrics.
package internal

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpcstats"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/transport"
	"berth.dev/services/assigner/dispatch"
)

// idleTimeout is how long an unused connection to an agent is kept.
const idleTimeout = time.Minute

// Sender sends each request of the core to an agent once; the core decides about retries. It
// wakes the calls that wait for a change of the core.
type Sender struct {
	// security is the TLS configuration of connections to agents; nil for plain text.
	security *tls.Config
	traces   *tracing.Tracing
	log      *slog.Logger

	// submits are the start requests of the current round. Only the loop's goroutine uses
	// submits.
	submits []dispatch.Submit

	// watches has the calls that wait for a change that the core reports.
	watches watches

	mu          sync.Mutex
	connections map[string]*connection // by address
	swept       time.Time
}

// connection is a connection to an agent.
type connection struct {
	conn   *grpc.ClientConn
	client controlv1.ExecutorClient
	calls  int       // in flight
	used   time.Time // when the last call ended
	// replaced is true when another connection has taken the address. The last call on a
	// replaced connection closes it.
	replaced bool
}

// NewSender returns a Sender. security is the TLS configuration of connections to agents;
// nil for plain text. If a reservation is traced, each request about it is a span of the
// reservation's trace.
func NewSender(security *tls.Config, traces *tracing.Tracing, log *slog.Logger) *Sender {
	return &Sender{security: security, traces: traces, log: log, connections: map[string]*connection{}, swept: time.Now()}
}

// Close closes all connections. It must be called after the last request.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, c := range s.connections {
		c.conn.Close()
		delete(s.connections, address)
	}
}

// connect returns a connection to an address. The caller must call done after its call. If
// fresh is true, a new connection replaces the existing connection, so that a broken
// connection does not serve every retry. Calls on the replaced connection continue.
func (s *Sender) connect(address string, fresh bool) (c *connection, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	c = s.connections[address]
	if c != nil && fresh {
		c.replaced = true
		if c.calls == 0 {
			c.conn.Close()
		}
		c = nil
	}
	if c == nil {
		creds := insecure.NewCredentials()
		if s.security != nil {
			creds = credentials.NewTLS(s.security)
		}
		conn, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(creds), grpc.WithPerRPCCredentials(transport.CheckExecutors()),
			grpc.WithIdleTimeout(idleTimeout), grpc.WithDisableRetry(), grpc.WithNoProxy(),
			rpc.RefuseCompressed(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(rpc.PublicMessageLimit)),
			grpc.WithStatsHandler(rpcstats.Client(nil, s.traces.Provider())), grpc.WithStatsHandler(deliveries{}))
		if err != nil {
			return nil, nil, err
		}
		c = &connection{conn: conn, client: controlv1.NewExecutorClient(conn)}
		s.connections[address] = c
	}
	c.calls++
	return c, func() { s.done(c) }, nil
}

func (s *Sender) done(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.used = time.Now()
	if c.calls--; c.calls == 0 && c.replaced {
		c.conn.Close()
	}
}

// sweep closes connections that were unused for idleTimeout, because the addresses of
// agents change. It does nothing if the last sweep was less than idleTimeout ago.
func (s *Sender) sweep() {
	now := time.Now()
	if now.Sub(s.swept) < idleTimeout {
		return
	}
	s.swept = now
	for address, c := range s.connections {
		if c.calls == 0 && now.Sub(c.used) >= idleTimeout {
			c.conn.Close()
			delete(s.connections, address)
		}
	}
}

// Perform implements loop.Config.
func (s *Sender) Perform(t *loop.Term, core *dispatch.Core, action model.Action) {
	switch a := action.(type) {
	case dispatch.Submit:
		if s.submits == nil {
			t.After(func() { s.sendSubmits(t) })
		}
		// A later decision, such as a cancel, may have withdrawn the request.
		if core.Wanted(a) {
			s.submits = append(s.submits, a)
		} else {
			unsent := a.Done(dispatch.NotSent{})
			t.Go("executor "+a.Executor, unsent, func(context.Context) { t.Post(unsent) })
		}
	case dispatch.Stop:
		t.Go("executor "+a.Executor, a.Done(panicked), func(ctx context.Context) { t.Post(a.Done(s.stop(ctx, a))) })
	case dispatch.DropVolumes:
		t.Go("executor "+a.Executor, a.Done(panicked), func(ctx context.Context) { t.Post(a.Done(s.drop(ctx, a))) })
	case dispatch.MembersChanged:
		core.Unwatch(a.Key)
		s.watches.wake(a.Key)
	default:
		panic(fmt.Sprintf("assigner: unknown action %T", action))
	}
}

func (s *Sender) stop(ctx context.Context, a dispatch.Stop) any {
	ctx, cancel := context.WithTimeout(tracing.With(ctx, a.Trace), a.Timeout)
	defer cancel()
	agent, done, err := s.connect(a.Address, a.Fresh)
	if err != nil {
		return dispatch.Unknown{Message: err.Error()}
	}
	defer done()
	answer, err := agent.client.StopTask(transport.ToExecutors(ctx, a.Executor), &controlv1.StopTaskRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Worker: workerRef(a.Request),
		Grace: durationpb.New(a.Grace), Nonce: string(a.Nonce),
	})
	if err != nil {
		return failureOf(err)
	}
	return stopOf(answer)
}

// drop sends a request to destroy volumes.
func (s *Sender) drop(ctx context.Context, a dispatch.DropVolumes) any {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	agent, done, err := s.connect(a.Address, a.Fresh)
	if err != nil {
		return dispatch.Unknown{Message: err.Error()}
	}
	defer done()
	if _, err = agent.client.DropVolumes(transport.ToExecutors(ctx, a.Executor), &controlv1.DropVolumesRequest{
		Term: a.Term, Executor: a.Executor, Incarnation: a.Incarnation, Nonce: string(a.Nonce), Ids: a.IDs,
	}); err != nil {
		return failureOf(err)
	}
	return dispatch.Dropping{}
}

func workerRef(r dispatch.Request) *controlv1.WorkerRef {
	w := r.Worker
	return &controlv1.WorkerRef{Job: w.Job, Stage: w.Stage, Index: w.ID.Index, Number: w.ID.Number, Epoch: r.Epoch,
		Uid: r.UID}
}
