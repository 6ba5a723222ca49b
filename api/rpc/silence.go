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

// probes detect the silent replicas of one client. A frozen process, or a host that is
// cut off, closes no connection. Calls to it hang, and gRPC sends new ones there too,
// because it still counts as serving. gRPC's own pings need 13 s to notice. Therefore
// each replica is probed over a connection of its own. If it does not answer, all its
// connections are closed, and none is made until it answers again. Calls in progress
// then end as Unavailable, and are repeated at another replica.
type probes struct {
	limit    time.Duration
	ctx      context.Context
	end      context.CancelFunc  // does not close connections
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

// probe probes the replicas at the addresses until end is called. The options are those
// of the client, without its dialer and balancing.
func probe(addresses []string, limit time.Duration, options []grpc.DialOption) (*probes, error) {
	l := &probes{limit: limit, replicas: map[string]*replica{}}
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
	defer r.close() //nolint:errcheck // it can only be closed already
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
		// Any other error is an answer too, such as one that the call is unknown.
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

// dial connects to a replica unless it is silent.
func (l *probes) dial(ctx context.Context, address string) (net.Conn, error) {
	r := l.replicas[address]
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if silent {
		return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s is silent", address)
	}
	var d net.Dialer
	made, err := d.DialContext(ctx, "tcp", address)
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
