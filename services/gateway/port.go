package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"google.golang.org/grpc"

	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
	"berth.dev/services/gateway/internal/guard"
	"berth.dev/services/gateway/internal/surface"
)

// sniff is how long a connection has to say what it speaks. If it has said nothing by
// then, it is closed: no server allocates buffers for it.
const sniff = 10 * time.Second

// speaks matches a connection that has said anything.
func speaks(r io.Reader) bool {
	var first [1]byte
	_, err := io.ReadFull(r, first[:])
	return err == nil
}

// agentMessageLimit bounds what an agent sends at a time, bytes: a report of all
// its workers.
const agentMessageLimit = 4 << 20

// connectionOptions are for connections between Berth's own processes. A fixed
// window spares the pings that an estimate takes, one for each message.
func connectionOptions() []grpc.ServerOption {
	const buffer, window = 4 << 10, 1 << 20
	return []grpc.ServerOption{
		grpc.ReadBufferSize(buffer), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
	}
}

// face is what the gateway serves on one listener: the gRPC methods of a surface
// and, on the public one, REST.
type face struct {
	surface  surface.Listener
	listener net.Listener
	guard    *guard.Guard // nil where only Berth's own services call
	server   *rpc.Server
	web      *http.Server // nil where only gRPC is served
	// security is for a face with REST, whose connections say only under TLS what
	// they speak. The server of any other ends TLS by itself.
	security *tls.Config
}

// serve starts the members that serve the face.
//
// Where there is REST, HTTP/2 is gRPC and all else is HTTP/1: under TLS browsers
// are offered HTTP/1 first, and gRPC speaks nothing but HTTP/2.
func (f *face) serve(g *process.Group) {
	name := " on " + f.surface.String()
	if f.guard != nil {
		f.listener = f.guard.Listener(f.listener)
	}
	if f.web == nil {
		g.Go("gRPC"+name, func(context.Context) error { return f.server.Serve(f.listener) })
		return
	}
	calls := f.listener
	if f.security != nil {
		security := f.security.Clone()
		security.NextProtos = []string{"http/1.1", "h2"}
		calls = tls.NewListener(calls, security)
	}
	mux := cmux.New(calls)
	mux.SetReadTimeout(sniff)
	var (
		calling net.Listener = mux.Match(cmux.HTTP2())
		web     net.Listener = f.guard.HTTP1(mux.Match(speaks))
	)
	g.Go("gRPC"+name, func(context.Context) error { return f.server.Serve(calling) })
	g.Go("HTTP"+name, process.ServeHTTP(f.web, web))
	g.Go("listen"+name, func(context.Context) error { return mux.Serve() })
}

// finish stops the gRPC servers of all faces at once, each as rpc.Server.Shutdown
// does.
func finish(faces []*face) func(context.Context) error {
	return func(ctx context.Context) error {
		errs := make([]error, len(faces))
		var all sync.WaitGroup
		for i, f := range faces {
			all.Go(func() { errs[i] = f.server.Shutdown(ctx) })
		}
		all.Wait()
		return errors.Join(errs...)
	}
}
