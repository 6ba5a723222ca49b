package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"google.golang.org/grpc"

	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/process"
	"berth.dev/services/gateway/internal/guard"
)

// sniff is how long a new connection may send nothing. After that the connection is
// closed, before a server has allocated buffers for it.
const sniff = 10 * time.Second

// sendsAnything matches a connection that has sent a byte.
func sendsAnything(r io.Reader) bool {
	var first [1]byte
	_, err := io.ReadFull(r, first[:])
	return err == nil
}

// agentMessageLimit is the maximum size of a message of an agent, in bytes. It suffices for
// a report of all workers of the agent.
const agentMessageLimit = 4 << 20

// connectionOptions returns the options for connections between Berth's own processes. With
// a window of fixed size, gRPC need not send a ping with each message to estimate the size.
func connectionOptions() []grpc.ServerOption {
	const buffer, window = 4 << 10, 1 << 20
	return []grpc.ServerOption{
		grpc.ReadBufferSize(buffer), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
	}
}

// endpoint is one listener of the gateway with its servers: a gRPC server with the methods
// of the listener and, on the public listener, an HTTP server for REST.
type endpoint struct {
	at       access.Listener
	listener net.Listener
	guard    *guard.Guard // nil if only Berth's own services call this endpoint
	server   *rpc.Server
	web      *http.Server // nil if only gRPC is served
}

// serve starts the servers of the endpoint.
//
// If the endpoint has REST, the gRPC server serves HTTP/2, and the HTTP server serves all
// other connections as HTTP/1.
func (e *endpoint) serve(g *process.Group, secured *process.Secured) {
	name := " on " + e.at.String()
	if e.guard != nil {
		e.listener = e.guard.Listener(e.listener)
	}
	e.listener = secured.Listener(e.listener, e.at.String(), e.web != nil)
	if e.web == nil {
		g.Go("gRPC"+name, func(context.Context) error { return e.server.Serve(e.listener) })
		return
	}
	mux := cmux.New(e.listener)
	mux.SetReadTimeout(sniff)
	calling := sniffed{mux.Match(cmux.HTTP2())}
	web := e.guard.HTTP1(sniffed{mux.Match(sendsAnything)})
	g.Go("gRPC"+name, func(context.Context) error { return e.server.Serve(calling) })
	g.Go("HTTP"+name, process.ServeHTTP(e.web, web))
	g.Go("listen"+name, func(context.Context) error { return mux.Serve() })
}

// sniffed is a listener of cmux whose connections name the connection below, for
// transport.PeerOf.
type sniffed struct {
	net.Listener
}

type sniffedConn struct {
	*cmux.MuxConn
}

// Accept implements net.Listener.
func (l sniffed) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if mux, ok := c.(*cmux.MuxConn); ok {
		return sniffedConn{mux}, err
	}
	return c, err
}

// NetConn returns the connection below.
func (c sniffedConn) NetConn() net.Conn { return c.Conn }

// finish shuts down the gRPC servers of all endpoints at the same time.
func finish(endpoints []*endpoint) func(context.Context) error {
	return func(ctx context.Context) error {
		errs := make([]error, len(endpoints))
		var all sync.WaitGroup
		for i, e := range endpoints {
			all.Go(func() { errs[i] = e.server.Shutdown(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
}
