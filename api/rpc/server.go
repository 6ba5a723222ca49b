package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

// Limits and times of servers and clients.
const (
	// PeerMessageLimit bounds a message between Berth's own processes, bytes: a
	// scheduling cycle has the heads of all queues, and its answer as many outcomes.
	PeerMessageLimit = 16 << 20
	// PublicMessageLimit bounds a message at the gateway, bytes: the 1 MiB of a
	// REST body, and slack for its binary form and names in the path.
	PublicMessageLimit = 1<<20 + 64<<10
	// DefaultDeadline is given to unary calls that come without one.
	DefaultDeadline = 30 * time.Second
)

// ServerOptions say how one server differs from the usual one. The zero value
// is a peer's server without TLS.
type ServerOptions struct {
	// Log takes panics; the default logger unless given.
	Log *slog.Logger
	// MaxMessage bounds a request in bytes; PeerMessageLimit unless given.
	MaxMessage int
	// MaxFields bounds the fields at the top of a request, counting each element of a
	// repeated field; no bound by default.
	MaxFields int
	// Deadline is given to unary calls without one; DefaultDeadline unless
	// given.
	Deadline time.Duration
	// TLS, when given, is required of callers.
	TLS *tls.Config
	// Stats, when given, sees every call.
	Stats stats.Handler
	// More is passed on to grpc.NewServer.
	More []grpc.ServerOption
}

// Server is a gRPC server with the health service on it.
type Server struct {
	*grpc.Server
	health *health.Server
}

// NewServer makes a server that renders errors as ToStatus does, turns a panic
// into an Internal error, gives unary calls a deadline and answers health
// checks. Its services are not healthy until SetServing says so.
func NewServer(o ServerOptions) *Server {
	e := edge{log: cmp.Or(o.Log, slog.Default()), deadline: cmp.Or(o.Deadline, DefaultDeadline)}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(frameCodec{encoding.GetCodecV2(proto.Name), o.MaxFields}),
		grpc.ChainUnaryInterceptor(e.unary),
		grpc.ChainStreamInterceptor(e.stream),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxMessage, PeerMessageLimit)),
		// Clients ping every 10 s, the least that grpc-go sends.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	if o.Stats != nil {
		options = append(options, grpc.StatsHandler(o.Stats))
	}
	s := &Server{grpc.NewServer(append(options, o.More...)...), health.NewServer()}
	healthpb.RegisterHealthServer(s, s.health)
	return s
}

// RegisterService registers a service. It rejects a request that is compressed or not
// protobuf as the caller's mistake.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, implementation any) {
	described := *desc
	described.Methods = slices.Clone(desc.Methods)
	for i, m := range described.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		described.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			if err := uncompressed(ctx); err != nil {
				return nil, ToStatus(err)
			}
			return m.Handler(srv, ctx, func(request any) error {
				d := decoding{message: request}
				if err := decode(&d); err != nil {
					return malformed(err)
				}
				return d.decoded(method)
			}, interceptor)
		}
	}
	// If a method has one request, gRPC keeps it until the caller ends its side, and no
	// handler sees it before: nothing could count or refuse it.
	described.Streams = slices.Clone(desc.Streams)
	for i := range described.Streams {
		described.Streams[i].ClientStreams = true
	}
	s.Server.RegisterService(&described, implementation)
}

// LeaderHealth is the name under which only the serving leader of a service
// reports to be healthy.
func LeaderHealth(service string) string { return service + ".leader" }

// SetServing says whether a health name serves. Clients that were dialled with
// this name call this server only while it does.
func (s *Server) SetServing(name string, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, state)
}

// Shutdown reports every name as not serving, refuses new calls and waits for
// those under way. When ctx ends first they are cut off; its error says so.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-done
		return context.Cause(ctx)
	}
}
