// Package relay carries the heartbeats of agents to executor-state: all agents of
// this gateway over one stream to each replica.
//
//	agent ── Heartbeat ──┐
//	agent ── Heartbeat ──┼─ Relay ─▶ a replica of executor-state
//	agent ── Heartbeat ──┘
//
// It promises what a stream of each agent's own would: what an agent sends comes
// in order, the end of either side is told to the other at once (that of a replica,
// to agents that have sent nothing but beats for 5 s, within half a second), and an agent that
// sends much or takes nothing slows down only itself. What brings news is sent at
// once. A heartbeat that brings none waits a moment for others, and is a number
// then: most of what thousands of agents cost is system calls.
//
// A replica that does not know Relay gets a stream for each agent.
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/rpc"
)

// Options of relays.
type Options struct {
	// Replicas are the addresses of every replica of executor-state.
	Replicas []string
	// Silence is how long a replica may give no word before its agents are sent
	// elsewhere; see rpc.DialOptions.
	Silence time.Duration
	// TLS to call replicas with; nil for none.
	TLS *tls.Config
	// Meters, when given, take the figures of the relays.
	Meters metric.MeterProvider
	// Forward takes an agent's stream when there is no relay because a replica does
	// not know them.
	Forward grpc.StreamHandler
}

// Relays are the relays of a gateway, one to each replica.
type Relays struct {
	forward grpc.StreamHandler
	conns   []*grpc.ClientConn
	life    context.Context
	end     context.CancelFunc
	closing sync.WaitGroup // of relays that broke
	pace    pacer

	mu sync.Mutex
	// open are those that carry; former says of each replica whether it did not
	// know Relay when it was last asked.
	open   []*relay
	former map[*grpc.ClientConn]bool
	// changed is closed, and made afresh, when either changes.
	changed chan struct{}
}

// reopenPause is left between two relays to one replica.
const reopenPause = 100 * time.Millisecond

// formerPause is left before a replica that does not know Relay is asked again: it
// may be followed by one that does.
const formerPause = 5 * time.Second

// New connects to the replicas, none of which needs to answer yet; Run opens the
// relays.
func New(o Options) (*Relays, error) {
	r := &Relays{forward: o.Forward, pace: newPacer(), former: map[*grpc.ClientConn]bool{}, changed: make(chan struct{})}
	r.life, r.end = context.WithCancel(context.Background())
	for _, address := range o.Replicas {
		conn, err := rpc.Dial([]string{address}, rpc.DialOptions{
			Health: model.ServiceExecutorState, Silence: o.Silence, TLS: o.TLS, Meters: o.Meters, More: dialOptions(),
		})
		if err != nil {
			r.Close()
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "the addresses of %s cannot be used", model.ServiceExecutorState).Because(err)
		}
		r.conns = append(r.conns, conn)
	}
	return r, nil
}

// window is how many bytes may be under way on a relay. A fixed one spares the
// pings that an estimate takes, one for each message.
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
				pause := reopenPause
				err := r.relay(conn)
				former := status.Code(err) == codes.Unimplemented
				if former {
					pause = formerPause
				}
				r.change(func() { r.former[conn] = former })
				select {
				case <-time.After(pause):
				case <-r.life.Done():
				}
			}
		})
	}
	all.Wait()
	r.closing.Wait()
	return nil
}

// relay carries to one replica until that breaks.
func (r *Relays) relay(conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(r.life)
	defer cancel()
	stream, err := controlv1.NewHeartbeatsClient(conn).Relay(ctx)
	if err != nil {
		return err
	}
	// A replica that knows Relay says so at once; of another one only the end tells.
	if known, err := stream.Header(); err != nil || known == nil {
		_, err = stream.Recv()
		return err
	}
	one := newRelay(stream)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		one.send(ctx)
		cancel()
	}()
	r.change(func() { r.open, r.former[conn] = append(r.open, one), false })
	err = rpc.Recover(one.receive)
	r.change(func() { r.open = slices.DeleteFunc(r.open, func(o *relay) bool { return o == one }) })
	cancel()
	<-sent
	r.closing.Go(func() { one.close(r.life, broken(r.life, err)) })
	return err
}

// broken is what the agents of a relay are told that has ended.
func broken(life context.Context, err error) error {
	if life.Err() != nil {
		return errStopping
	}
	return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the replica of executor-state is gone; another one answers").Because(err)
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "this gateway is stopping; another one answers")

// End ends every agent's stream, and refuses new ones, so that a server can stop:
// the agents find another gateway.
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

// choose picks the relay with the fewest agents, waiting until there is one. It
// answers none where a replica does not know relays.
func (r *Relays) choose(ctx context.Context) (*relay, error) {
	for {
		r.mu.Lock()
		var least *relay
		for _, one := range r.open {
			if least == nil || one.count() < least.count() {
				least = one
			}
		}
		former := false
		for _, f := range r.former {
			former = former || f
		}
		changed := r.changed
		r.mu.Unlock()
		if least != nil || former {
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
