package guard

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/api/fault"
)

// Limits are the limits of one listener.
type Limits struct {
	// Connections is the maximum number of open connections.
	Connections int
	// Streams is the maximum number of open streams on one HTTP/2 connection.
	Streams int
	// Memory is the maximum memory of requests in flight, in bytes. Large headers may use a
	// quarter of this amount in addition. They have a separate limit because a stream keeps
	// its headers while it is open, and headers must not exhaust the memory for bodies and
	// messages.
	Memory int64
	// OneMessage means that each call has exactly one request message. The guard rejects a
	// second message, and the caller must end the stream together with its message. Without
	// OneMessage, a stream may be silent between two messages. In both cases the first
	// message is due when the call begins.
	OneMessage bool
}

// Guard guards one listener.
type Guard struct {
	limits  Limits
	budget  *Budget
	headers *Budget // for the headers of requests that have arrived

	connections, calls atomic.Int64
	rejecting          chan struct{} // one element for each connection that reject answers
	resetting          chan struct{} // one element while a connection waits in pause
}

// rejections is the maximum number of connections beyond the limit that reject answers at the
// same time. It closes further connections without an answer.
const rejections = 64

// New returns a guard.
func New(limits Limits) *Guard {
	return &Guard{limits: limits, budget: NewBudget(limits.Memory), headers: NewBudget(limits.Memory / 4),
		rejecting: make(chan struct{}, rejections), resetting: make(chan struct{}, 1)}
}

// Connections returns the number of open connections.
func (g *Guard) Connections() int64 { return g.connections.Load() }

// Memory returns the memory that requests in flight use, in bytes.
func (g *Guard) Memory() int64 { return g.budget.Used() + g.headers.Used() }

// Listener returns a listener that limits the number of connections, and closes connections
// whose peer does not read.
func (g *Guard) Listener(l net.Listener) net.Listener { return &listener{Listener: l, guard: g} }

type listener struct {
	net.Listener
	guard *Guard
}

// Accept implements net.Listener. While the process has no file descriptors left, Accept
// waits: the servers that call it would exit or spin on an error.
func (l *listener) Accept() (net.Conn, error) {
	for pause := 5 * time.Millisecond; ; {
		c, err := l.Listener.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case errors.As(err, &temporary) && temporary.Temporary():
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		case err != nil:
			return nil, err
		case l.guard.connections.Add(1) > int64(l.guard.limits.Connections):
			l.guard.connections.Add(-1)
			l.guard.reject(c)
		default:
			return &conn{Conn: c, guard: l.guard}, nil
		}
	}
}

// tooMany is the answer to an HTTP/1 caller without TLS. Any other caller only sees that the
// connection is closed.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1\r\n\r\n" +
	`{"code":14,"message":"too many connections","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` +
	string(fault.ReasonOverloaded) + `","domain":"` + fault.Domain + `"}]}` + "\n"

// reject answers a connection beyond the limit and closes it. It reads the request first,
// because closing a connection with unread input discards the answer.
func (g *Guard) reject(c net.Conn) {
	select {
	case g.rejecting <- struct{}{}:
	default:
		c.Close()
		return
	}
	go func() {
		defer func() { c.Close(); <-g.rejecting }()
		c.SetDeadline(time.Now().Add(headerTime)) //nolint:errcheck // the connection is closed anyway
		if _, err := c.Write([]byte(tooMany)); err != nil {
			return
		}
		closeWrite(c) //nolint:errcheck // the connection is closed anyway
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

// conn is a counted connection. If its peer reads answers too slowly, conn closes itself.
type conn struct {
	net.Conn
	guard  *Guard
	closed atomic.Bool

	mu sync.Mutex
	// deadline is the write deadline of the server.
	deadline time.Time
	// waited is how long writes have blocked beyond the time that pace allows, minus the
	// time between writes, and at least 0. The last write ended at lastWrite.
	waited    time.Duration
	lastWrite time.Time
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.guard.connections.Add(-1)
	}
	return c.Conn.Close()
}

// NetConn returns the connection below, for transport.PeerOf.
func (c *conn) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the writing side of the connection.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes the writing side of a connection, if the connection supports this.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
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

// Write implements net.Conn. It closes the connection if the peer reads slower than pace for
// longer than patience. Writes must not be concurrent.
func (c *conn) Write(b []byte) (int, error) {
	begun := time.Now()
	c.mu.Lock()
	c.waited = max(0, c.waited-begun.Sub(c.lastWrite))
	until := begun.Add(patience - c.waited)
	ours := c.deadline.IsZero() || until.Before(c.deadline)
	if ours {
		c.Conn.SetWriteDeadline(until) //nolint:errcheck // the write returns the error
	}
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	c.lastWrite = time.Now()
	c.waited = max(0, c.waited+c.lastWrite.Sub(begun)-time.Duration(n)*time.Second/pace)
	if ours {
		c.Conn.SetWriteDeadline(c.deadline) //nolint:errcheck // the next write returns the error
	}
	c.mu.Unlock()
	if err != nil && ours {
		// After a failed write, gRPC closes the connection only when its reader fails too.
		c.Close()
	}
	return n, err
}
