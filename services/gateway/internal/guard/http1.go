package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// HTTP1 returns a listener for the server of HTTPServer. It bounds the memory of incomplete
// headers on the listener's connections.
func (g *Guard) HTTP1(l net.Listener) net.Listener { return &http1Listener{l, g} }

type http1Listener struct {
	net.Listener
	guard *Guard
}

func (l *http1Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &http1{Conn: c, budget: l.guard.budget}, nil
}

// http1 is an HTTP/1 connection. It allocates the memory of a header while the header
// arrives, and releases it when the handler begins.
type http1 struct {
	net.Conn
	budget *Budget

	mu       sync.Mutex
	handling bool
	head     *Hold
}

// Read implements net.Conn.
func (c *http1) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handling || n == 0 {
		return n, err
	}
	if c.head == nil {
		c.head = c.budget.Begin(func() { go c.Conn.Close() })
	}
	if !c.head.Grow(int64(n)) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close implements net.Conn.
func (c *http1) Close() error {
	c.handle(true) // no header follows
	return c.Conn.Close()
}

// CloseWrite closes the writing side of the connection. With it, the server can finish its
// answer before it closes a connection with unread input; otherwise closing could discard the
// answer.
func (c *http1) CloseWrite() error { return closeWrite(c.NetConn()) }

// NetConn returns the connection below, for transport.PeerOf.
func (c *http1) NetConn() net.Conn {
	if sniffed, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return sniffed.NetConn()
	}
	return c.Conn
}

// handle sets whether a handler runs. While a handler runs, the connection receives no header.
func (c *http1) handle(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handling = on
	if c.head != nil {
		c.head.End()
		c.head = nil
	}
}

type connKey struct{}

// keepAlivePart limits the connections that are kept alive. If more than a keepAlivePart-th of
// the allowed connections are open, HTTP/1 connections are closed after their answer.
const keepAlivePart = 8

// HTTPServer returns the HTTP/1 server. Before the server calls the handler, it reads the
// complete body of the request, at most maxBody bytes, and sets the request's ContentLength.
// If a request exceeds a limit, the server calls reject to answer it.
func (g *Guard) HTTPServer(handler http.Handler, maxBody int64,
	reject func(http.ResponseWriter, int, *fault.Error)) *http.Server {
	return &http.Server{
		ReadHeaderTimeout: headerTime, IdleTimeout: idle, MaxHeaderBytes: HeaderLimit,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, ok := r.Context().Value(connKey{}).(*http1); ok {
				c.handle(true)
				defer c.handle(false)
			}
			hold := g.headers.takeHeaders(len(r.RequestURI)+len(r.Host), r.Header, r.Trailer)
			if hold == nil {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				reject(w, http.StatusServiceUnavailable, errHeaders)
				return
			}
			defer hold.End()
			if g.connections.Load() > int64(g.limits.Connections)/keepAlivePart {
				w.Header().Set("Connection", "close")
			}
			if r.ContentLength == 0 {
				handler.ServeHTTP(w, r)
				return
			}
			control := http.NewResponseController(w)
			var mu sync.Mutex
			reading := true
			hold = g.budget.Begin(func() {
				mu.Lock()
				defer mu.Unlock()
				if reading {
					control.SetReadDeadline(time.Now()) //nolint:errcheck // it fails only on a closed connection
				}
			})
			defer hold.End()
			body, err := read(r, maxBody, hold)
			mu.Lock()
			reading = false
			mu.Unlock()
			if !hold.Whole() && err == nil {
				err = errMemory
			}
			var timeout net.Error
			switch {
			case err == nil && !hold.Grow(decoded(body)):
				err = errMemory
			case errors.As(err, &timeout) && timeout.Timeout() && time.Since(hold.since) < grace:
				err = errMemory
			}
			if err == nil {
				control.SetReadDeadline(time.Time{}) //nolint:errcheck // it fails only on a closed connection
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				handler.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Connection", "close")
			switch {
			case errors.Is(err, errMemory):
				w.Header().Set("Retry-After", "1")
				reject(w, http.StatusServiceUnavailable, Overloaded("too many requests are in flight"))
			case errors.Is(err, errTooLarge):
				reject(w, http.StatusRequestEntityTooLarge, fault.New(fault.Invalid, fault.ReasonTooLarge,
					"the body is larger than %d bytes", maxBody))
			case errors.As(err, &timeout) && timeout.Timeout():
				reject(w, http.StatusRequestTimeout, fault.New(fault.Invalid, fault.ReasonInvalid,
					"the body did not arrive in time: it has %s, and one second more for every %d bytes", grace, pace))
			default:
				reject(w, http.StatusBadRequest, fault.New(fault.Invalid, fault.ReasonInvalid,
					"the body ended too early").Because(err))
			}
		}),
	}
}

// Overloaded returns the error for a caller beyond a limit.
func Overloaded(format string, args ...any) *fault.Error {
	return fault.New(fault.Unavailable, fault.ReasonOverloaded, format+"; try again later", args...)
}

var (
	errMemory   = errors.New("no memory for the body")
	errTooLarge = errors.New("the body is too large")
)

// chunk is the number of bytes of a body that are read at a time. Chunks are reused, because
// bodies that never end would otherwise cause most of the garbage.
const chunk = 16 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// read reads a complete body. It allocates memory only for data that has arrived, whatever
// length the header declares.
func read(r *http.Request, limit int64, hold *Hold) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	var parts []*[chunk]byte
	defer func() {
		for _, part := range parts {
			chunks.Put(part)
		}
	}()
	size := 0
	for {
		if size == chunk*len(parts) {
			if !hold.GrowWaiting(chunk) {
				return nil, errMemory
			}
			parts = append(parts, chunks.Get().(*[chunk]byte))
		}
		n, err := r.Body.Read(parts[len(parts)-1][size%chunk:])
		size += n
		switch {
		case int64(size) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			body := make([]byte, 0, size)
			for _, part := range parts {
				body = append(body, part[:min(chunk, size-len(body))]...)
			}
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// decoded returns an estimate of the memory of a decoded JSON body, in bytes. Each object
// becomes a message, however short its text is.
func decoded(body []byte) int64 {
	const message = 200
	return 4*int64(len(body)) + message*int64(bytes.Count(body, []byte("{")))
}
