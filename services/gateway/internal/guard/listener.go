package guard

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/api/fault"
)

// Limits are those of one listener.
type Limits struct {
	// Connections bounds the connections that are open at a time.
	Connections int
	// Streams bounds the streams that are open at a time on one HTTP/2 connection.
	Streams int
	// Memory bounds the memory of requests in flight, bytes. Large headers may take a
	// quarter as much in addition: streams hold theirs for as long as they are open,
	// and must not take the memory of bodies and messages meanwhile.
	Memory int64
	// OneMessage says that a call has exactly one request message and ends its
	// stream with it: a second message is refused, and the end is due. The first
	// message is due when the call begins in either case; without OneMessage, streams
	// may wait for their next one.
	OneMessage bool
}

// Guard guards one listener.
type Guard struct {
	limits  Limits
	budget  *Budget
	headers *Budget // of requests that have arrived

	connections, calls atomic.Int64
	refusing           chan struct{}
	resetting          chan struct{} // has one element while a connection has its turn
}

// refusals bounds the connections that are being told that they are too many.
const refusals = 64

// New makes a guard.
func New(limits Limits) *Guard {
	return &Guard{limits: limits, budget: NewBudget(limits.Memory), headers: NewBudget(limits.Memory / 4), refusing: make(chan struct{}, refusals), resetting: make(chan struct{}, 1)}
}

// Connections returns how many connections are open.
func (g *Guard) Connections() int64 { return g.connections.Load() }

// Memory returns the bytes that requests in flight take.
func (g *Guard) Memory() int64 { return g.budget.Used() + g.headers.Used() }

// Listener limits the connections that a listener accepts, and closes those whose
// peer does not take what is sent to it.
func (g *Guard) Listener(l net.Listener) net.Listener { return &listener{Listener: l, guard: g} }

type listener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener. It waits while the process has no file
// descriptors left, for its callers would end or spin.
func (l *listener) Accept() (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; {
		c, err := l.Listener.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case errors.As(err, &passing) && passing.Temporary():
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		case err != nil:
			return nil, err
		case l.guard.connections.Add(1) > int64(l.guard.limits.Connections):
			l.guard.connections.Add(-1)
			l.guard.refuse(c)
		default:
			return &conn{Conn: c, guard: l.guard}, nil
		}
	}
}

// tooMany is for a caller that speaks HTTP/1 without TLS. Any other sees the
// connection close.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1\r\n\r\n" +
	`{"code":14,"message":"too many connections","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` +
	string(fault.ReasonOverloaded) + `","domain":"` + fault.Domain + `"}]}` + "\n"

// refuse answers a connection that is one too many. It waits for what the peer
// sends, since to close with unread input destroys the answer.
func (g *Guard) refuse(c net.Conn) {
	select {
	case g.refusing <- struct{}{}:
	default:
		c.Close()
		return
	}
	go func() {
		defer func() { c.Close(); <-g.refusing }()
		c.SetDeadline(time.Now().Add(headerTime)) //nolint:errcheck // it is closed anyway
		if _, err := c.Write([]byte(tooMany)); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			half.CloseWrite() //nolint:errcheck // it is closed anyway
		}
		var input [4 << 10]byte
		for read := 0; read < HeaderLimit; {
			n, err := c.Read(input[:])
			if err != nil {
				return
			}
			read += n
		}
	}()
}

// conn is a connection that counts, and whose peer has to take what is written.
type conn struct {
	net.Conn
	guard  *Guard
	closed atomic.Bool

	mu sync.Mutex
	// deadline is the one that the server has set.
	deadline time.Time
	// waited is how long writes have waited beyond what the pace allows, less the
	// time between them. The last one ended at rested.
	waited time.Duration
	rested time.Time
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.guard.connections.Add(-1)
	}
	return c.Conn.Close()
}

// CloseWrite ends what is sent.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetWriteDeadline(t)
}

// Write implements net.Conn. A peer that takes less than the pace for longer than
// the patience loses its connection. Writers of a connection take turns.
func (c *conn) Write(b []byte) (int, error) {
	begun := time.Now()
	c.mu.Lock()
	c.waited = max(0, c.waited-begun.Sub(c.rested))
	until := begun.Add(patience - c.waited)
	ours := c.deadline.IsZero() || until.Before(c.deadline)
	if ours {
		c.Conn.SetWriteDeadline(until) //nolint:errcheck // the write will say so
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	c.rested = time.Now()
	c.waited = max(0, c.waited+c.rested.Sub(begun)-time.Duration(n)*time.Second/pace)
	if ours {
		c.Conn.SetWriteDeadline(c.deadline) //nolint:errcheck // the next write will say so
	}
	c.mu.Unlock()
	if err != nil && ours {
		// gRPC would wait for its reader to notice.
		c.Close()
	}
	return n, err
}
