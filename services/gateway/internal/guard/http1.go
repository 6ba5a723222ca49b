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

	"github.com/soheilhy/cmux"

	"berth.dev/api/fault"
)

// HTTP1 bounds the memory of heads that have not arrived whole, on connections
// that HTTPServer serves.
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

// http1 is a connection of HTTP/1, which holds a head until its handler begins.
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
	c.handle(true) // what is still read is no head
	return c.Conn.Close()
}

// CloseWrite lets the server end its answer before it closes a connection whose
// input it has not read: otherwise the answer could be lost.
func (c *http1) CloseWrite() error {
	below := c.Conn
	if sniffed, ok := below.(*cmux.MuxConn); ok {
		below = sniffed.Conn
	}
	if half, ok := below.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// handle says whether a handler has the connection: what arrives is not a head.
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

// keptAlive is the part of its connections that a listener may have, 1 of so many,
// from which on those of HTTP/1 are closed after their answer.
const keptAlive = 8

// HTTPServer makes the server of HTTP/1. It reads the body of each request, up to
// maxBody bytes, before the handler sees it. Refuse writes the answer to a request
// that the guard refuses.
func (g *Guard) HTTPServer(handler http.Handler, maxBody int64, refuse func(http.ResponseWriter, int, *fault.Error)) *http.Server {
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
				refuse(w, http.StatusServiceUnavailable, errHeaders)
				return
			}
			defer hold.End()
			if g.connections.Load() > int64(g.limits.Connections)/keptAlive {
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
					control.SetReadDeadline(time.Now()) //nolint:errcheck // it has gone
				}
			})
			defer hold.End()
			body, err := read(r, maxBody, hold)
			mu.Lock()
			reading = false
			mu.Unlock()
			if !hold.Whole() && err == nil {
				err = errNoRoom
			}
			var timeout net.Error
			switch {
			case err == nil && !hold.Grow(decoded(body)):
				err = errNoRoom
			case errors.As(err, &timeout) && timeout.Timeout() && time.Since(hold.since) < grace:
				err = errNoRoom
			}
			if err == nil {
				control.SetReadDeadline(time.Time{}) //nolint:errcheck // it has gone
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				handler.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Connection", "close")
			switch {
			case errors.Is(err, errNoRoom):
				w.Header().Set("Retry-After", "1")
				refuse(w, http.StatusServiceUnavailable, Overloaded("too many requests are in flight"))
			case errors.Is(err, errTooLarge):
				refuse(w, http.StatusRequestEntityTooLarge, fault.New(fault.Invalid, fault.ReasonTooLarge, "the body is larger than %d bytes", maxBody))
			case errors.As(err, &timeout) && timeout.Timeout():
				refuse(w, http.StatusRequestTimeout, fault.New(fault.Invalid, fault.ReasonInvalid,
					"the body did not arrive in time: it has %s and a second more for every %d bytes", grace, pace))
			default:
				refuse(w, http.StatusBadRequest, fault.New(fault.Invalid, fault.ReasonInvalid, "the body ended too early").Because(err))
			}
		}),
	}
}

// Overloaded is the answer to a caller beyond a limit.
func Overloaded(format string, args ...any) *fault.Error {
	return fault.New(fault.Unavailable, fault.ReasonOverloaded, format+"; try again later", args...)
}

var (
	errNoRoom   = errors.New("no room for the body")
	errTooLarge = errors.New("the body is too large")
)

// chunk is the part of a body that is read at a time. Chunks are used again: what
// bodies that never end leave behind would be more garbage than all else.
const chunk = 16 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// read reads a body whole. What its sender has not sent yet takes no memory,
// whatever length the head has declared.
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
				return nil, errNoRoom
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

// decoded estimates what a JSON body takes once it is decoded: each object is a
// message of its own, however short its text is.
func decoded(body []byte) int64 {
	const message = 200
	return 4*int64(len(body)) + message*int64(bytes.Count(body, []byte("{")))
}
