package rpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
)

// probes detects the silent replicas of one client. A frozen process, or a process on a
// host that is cut off, does not close its connections. Calls to it hang, and gRPC sends
// new calls to it too, because it still counts as serving. The pings of gRPC need 13 s to
// detect this. Therefore the client probes each replica over a separate connection. If a
// replica does not answer, the client closes all connections to it and opens none until
// the replica answers again. Calls in progress then return Unavailable, and callers
// repeat them at another replica.
type probes struct {
	limit    time.Duration
	connect  func(ctx context.Context, address string) (net.Conn, error)
	ctx      context.Context
	end      context.CancelFunc  // ends the probes, but does not close connections
	replicas map[string]*replica // by address
}

// replica is one probed replica.
type replica struct {
	probe healthpb.HealthClient
	close func() error

	mu     sync.Mutex
	silent bool
	conns  map[*conn]struct{}
}

// conn is a connection that its replica can close.
type conn struct {
	net.Conn
	of *replica
}

// probe starts to probe the replicas at the addresses. The probes run until end is
// called. connect makes connections. The options are those of the client, without its load
// balancing.
func probe(addresses []string, limit time.Duration, connect func(context.Context, string) (net.Conn, error),
	options []grpc.DialOption) (*probes, error) {
	l := &probes{limit: limit, connect: connect, replicas: map[string]*replica{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	for _, address := range addresses {
		probe, err := grpc.NewClient("passthrough:///"+address, options...)
		if err != nil {
			l.end()
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make a client").Because(err)
		}
		r := &replica{probe: healthpb.NewHealthClient(probe), close: probe.Close, conns: map[*conn]struct{}{}}
		l.replicas[address] = r
		go l.watch(r)
	}
	return l, nil
}

func (l *probes) watch(r *replica) {
	defer r.close() //nolint:errcheck // this fails only if it is closed already
	tick := time.NewTicker(l.limit / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(l.ctx, l.limit)
		_, err := r.probe.Check(ctx, &healthpb.HealthCheckRequest{})
		cancel()
		if l.ctx.Err() != nil {
			return
		}
		// Any other error is an answer too, for example that the method is unknown.
		r.setSilent(status.Code(err) == codes.DeadlineExceeded)
	}
}

// setSilent records whether the replica is silent.
func (r *replica) setSilent(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
	if !silent {
		return
	}
	for c := range r.conns {
		c.Conn.Close() // its reader gets an error
	}
	clear(r.conns)
}

// dial connects to a replica. It returns an error if the replica is silent.
func (l *probes) dial(ctx context.Context, address string) (net.Conn, error) {
	r := l.replicas[address]
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if silent {
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s is silent", address)
	}
	made, err := l.connect(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &conn{made, r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = struct{}{}
	return c, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
