// Package relay carries the heartbeats of agents to executor-state: all agents of
// this gateway over one stream to each replica.
//
//	agent ── Heartbeat ──┐
//	agent ── Heartbeat ──┼─ Relay ─▶ a replica of executor-state
//	agent ── Heartbeat ──┘
//
// It promises the same as a stream for each agent would: an agent's messages arrive in
// order, and the end of one side is reported to the other at once. An agent that sends too
// much or does not read slows down only itself. When a replica disconnects, agents that have
// sent only heartbeats without news for 5 s learn of it within half a second. News is sent
// at once. A heartbeat without news waits a moment for others and is sent as the agent's
// number, because most of the cost of thousands of agents is system calls.
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

// Options of relays.
type Options struct {
	// Replicas are the addresses of every replica of executor-state.
	Replicas []string
	// Silence is how long a replica may send nothing before its agents move to another
	// replica; see rpc.DialOptions.
	Silence time.Duration
	// TLS is for calls to replicas; nil for none.
	TLS *tls.Config
	// Meters, if given, receives the metrics of the relays.
	Meters metric.MeterProvider
}

// Relays are the relays of a gateway, one to each replica.
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

// reopenPause is the pause between two relays to one replica.
const reopenPause = 100 * time.Millisecond

// New connects to the replicas, none of which needs to answer yet; Run opens the
// relays.
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

// window is the flow-control window of a relay, bytes. A fixed window needs no pings, of
// which an estimated one sends one with each message.
const window = 1 << 20

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window)}
}

// Run keeps a relay to every replica until ctx ends.
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
		"the connection to a replica of executor-state broke; another one answers").Because(err)
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "this gateway is stopping; another one answers")

// End ends every agent's stream and rejects new ones, so that a server can stop: the agents
// connect to another gateway.
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

// choose returns the relay with the fewest agents, waiting until there is one.
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
