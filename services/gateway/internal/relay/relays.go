// Package relay carries the heartbeat streams of all agents of a gateway over one stream to
// each replica of executor-state, with the guarantees of separate streams: the messages of
// an agent arrive in order, and when one side ends its stream, the other side learns it at
// once. An agent that sends too much or does not read slows down only itself.
//
//	agent ── Heartbeat ──┐
//	agent ── Heartbeat ──┼─ Relay ─▶ a replica of executor-state
//	agent ── Heartbeat ──┘
//
// There is one exception: when a replica disconnects, an agent that has sent only heartbeats
// without a report for 5 s learns it within half a second.
//
// A relay sends a request with a report at once. A heartbeat without a report waits a moment
// for other heartbeats, and is sent as the number of the agent, because system calls are
// most of the cost of thousands of agents.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpcstats"
)

// Options are the options of relays.
type Options struct {
	// Replicas has the addresses of every replica of executor-state.
	Replicas []string
	// Silence is how long a replica may send nothing before its agents move to another
	// replica; see rpc.DialOptions.
	Silence time.Duration
	// TLS is the TLS configuration of calls to replicas. If it is nil, the relays call them
	// in the clear.
	TLS *tls.Config
	// Meters, if not nil, receives the metrics of the relays.
	Meters metric.MeterProvider
}

// Relays has the relays of a gateway, one to each replica.
type Relays struct {
	conns   []*grpc.ClientConn
	life    context.Context
	end     context.CancelFunc
	closing sync.WaitGroup // of broken relays
	pace    pacer

	mu   sync.Mutex
	open []*relay // relays that have not ended
	// changed is closed and replaced when open changes.
	changed chan struct{}
}

// reopenPause is the pause before a broken relay to a replica is opened again.
const reopenPause = 100 * time.Millisecond

// New connects to the replicas. The replicas need not answer yet; Run opens the relays.
func New(o Options) (*Relays, error) {
	r := &Relays{pace: newPacer(), changed: make(chan struct{})}
	r.life, r.end = context.WithCancel(context.Background())
	for _, address := range o.Replicas {
		conn, err := rpc.Dial([]string{address}, rpc.DialOptions{
			Health: model.ServiceExecutorState, Silence: o.Silence, TLS: o.TLS, Stats: rpcstats.Client(o.Meters, nil),
			More: dialOptions(),
		})
		if err != nil {
			r.Close()
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the addresses of %s cannot be used",
				model.ServiceExecutorState).Because(err)
		}
		r.conns = append(r.conns, conn)
	}
	return r, nil
}

// window is the flow-control window of a relay, in bytes. With a window of fixed size, gRPC
// need not send a ping with each message to estimate the size.
const window = 1 << 20

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window)}
}

// Run keeps a relay to every replica open until ctx ends.
func (r *Relays) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.end)()
	var all sync.WaitGroup
	for _, conn := range r.conns {
		all.Go(func() {
			for r.life.Err() == nil {
				r.relay(conn)
				select {
				case <-time.After(reopenPause):
				case <-r.life.Done():
				}
			}
		})
	}
	all.Wait()
	r.closing.Wait()
	return nil
}

// relay runs a relay to one replica until it breaks.
func (r *Relays) relay(conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(r.life)
	defer cancel()
	stream, err := controlv1.NewHeartbeatsClient(conn).Relay(ctx)
	if err != nil {
		return
	}
	// A replica sends the header when it is ready for agents.
	if header, err := stream.Header(); err != nil || header == nil {
		return
	}
	one := newRelay(stream)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		one.send(ctx)
		cancel()
	}()
	r.change(func() { r.open = append(r.open, one) })
	err = rpc.Recover(one.receive)
	r.change(func() { r.open = slices.DeleteFunc(r.open, func(o *relay) bool { return o == one }) })
	cancel()
	<-sent
	r.closing.Go(func() { one.close(r.life, broken(r.life, err)) })
}

// broken returns the error for the agents of a relay that has ended.
func broken(life context.Context, err error) error {
	if life.Err() != nil {
		return errStopping
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable,
		"the connection to a replica of executor-state broke; another replica answers").Because(err)
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable,
	"this gateway is stopping; another gateway answers")

// End ends every agent's stream and rejects new streams, so that a server can stop. The
// agents then connect to another gateway.
func (r *Relays) End() { r.end() }

// Close ends all relays.
func (r *Relays) Close() error {
	r.end()
	var errs []error
	for _, conn := range r.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

func (r *Relays) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	close(r.changed)
	r.changed = make(chan struct{})
}

// choose returns the open relay with the fewest agents. It waits until a relay is open.
func (r *Relays) choose(ctx context.Context) (*relay, error) {
	for {
		r.mu.Lock()
		var least *relay
		for _, one := range r.open {
			if least == nil || one.count() < least.count() {
				least = one
			}
		}
		changed := r.changed
		r.mu.Unlock()
		if least != nil {
			return least, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.life.Done():
			return nil, errStopping
		}
	}
}
