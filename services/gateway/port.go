package gateway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/soheilhy/cmux"
	"google.golang.org/grpc"

	"berth.dev/pkg/process"
	"berth.dev/pkg/rpc"
)

// sniff is how long a connection has to say what it speaks. One that has said
// nothing by then is taken for HTTP/1, whose own time-outs hold from there.
const sniff = time.Second

// agentOptions are for a server that thousands of agents hold a connection to, and
// send little over. Each connection keeps a buffer to read with, so that is small. A
// fixed window spares the pings that an estimate takes, one for each message.
func agentOptions() []grpc.ServerOption {
	const buffer, window = 4 << 10, 1 << 20
	return []grpc.ServerOption{
		grpc.ReadBufferSize(buffer), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
	}
}

// port serves gRPC and HTTP on one listener, and operations on another if there
// is one.
type port struct {
	log      *slog.Logger
	server   *rpc.Server
	web, ops *http.Server
}

// serve starts the members that serve. HTTP/2 is gRPC, all else is HTTP/1:
// under TLS browsers are offered HTTP/1 first, and gRPC speaks nothing but
// HTTP/2.
func (p *port) serve(g *process.Group, l *process.Listeners, security *tls.Config) {
	p.web.ErrorLog = slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)
	p.ops.ErrorLog = p.web.ErrorLog
	calls := l.Calls
	if security != nil {
		security = security.Clone()
		security.NextProtos = []string{"http/1.1", "h2"}
		calls = tls.NewListener(calls, security)
	}
	mux := cmux.New(calls)
	mux.SetReadTimeout(sniff)
	var (
		calling net.Listener = mux.Match(cmux.HTTP2())
		web     net.Listener = mux.Match(cmux.Any())
	)
	g.Go("gRPC", func(context.Context) error { return p.server.Serve(calling) })
	g.Go("HTTP", process.ServeHTTP(p.web, web))
	g.Go("listen", func(context.Context) error { return mux.Serve() })
	if l.HTTP != nil {
		g.Go("operations", process.ServeHTTP(p.ops, l.HTTP))
	}
}
