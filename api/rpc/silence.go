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

// listeners are the replicas of one client, listened to for silence. A process
// that is frozen, and a host that is cut off, end no connection: what was sent
// there waits, new calls are sent there too, because it still counts as serving,
// and gRPC's own pings need 13 s to notice. So each replica is asked for a word
// over a connection of its own; from one that gives none every connection is
// ended, and none is made there until it speaks again. Calls under way then end
// as Unavailable, perhaps applied, and are repeated where somebody answers.
type listeners struct {
	limit    time.Duration
	ctx      context.Context
	end      context.CancelFunc   // connections stay as they are
	replicas map[string]*listened // by address
}

// listened is one replica.
type listened struct {
	probe healthpb.HealthClient
	close func() error

	mu     sync.Mutex
	silent bool
	conns  map[*conn]struct{}
}

// conn is a connection that can be ended by who listens.
type conn struct {
	net.Conn
	of *listened
}

// listen asks the replicas at the addresses for a word, again and again, until end
// is called. The options are those of the client, but for its dialer and balancing.
func listen(addresses []string, limit time.Duration, options []grpc.DialOption) (*listeners, error) {
	l := &listeners{limit: limit, replicas: map[string]*listened{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	for _, address := range addresses {
		probe, err := grpc.NewClient("passthrough:///"+address, options...)
		if err != nil {
			l.end()
			return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make a client").Because(err)
		}
		r := &listened{probe: healthpb.NewHealthClient(probe), close: probe.Close, conns: map[*conn]struct{}{}}
		l.replicas[address] = r
		go l.listen(r)
	}
	return l, nil
}

func (l *listeners) listen(r *listened) {
	defer r.close() //nolint:errcheck // an error says that it was closed
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
		// Any other error is a word too: it is refused, or does not know the call.
		r.tell(status.Code(err) == codes.DeadlineExceeded)
	}
}

// tell says whether the replica is silent.
func (r *listened) tell(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
	if !silent {
		return
	}
	for c := range r.conns {
		c.Conn.Close() // who reads from it sees an error
	}
	clear(r.conns)
}

// dial connects to a replica, unless it is silent.
func (l *listeners) dial(ctx context.Context, address string) (net.Conn, error) {
	r := l.replicas[address]
	if err := r.refused(address); err != nil {
		return nil, err
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

func (r *listened) refused(address string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		return fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s is silent", address)
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
