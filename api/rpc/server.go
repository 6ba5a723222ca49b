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

// Limits and deadlines of servers and clients.
const (
	// PeerMessageLimit bounds a message between Berth's own processes, in bytes: a
	// scheduling cycle has the heads of all queues, and its answer as many outcomes.
	PeerMessageLimit = 16 << 20
	// PublicMessageLimit bounds a message at the gateway, in bytes: the 1 MiB of a REST
	// body, and space for its binary form and the names in the path.
	PublicMessageLimit = 1<<20 + 64<<10
	// DefaultDeadline is the deadline of unary calls without one.
	DefaultDeadline = 30 * time.Second
)

// ServerOptions configure a server. The zero value is for a peer's server without TLS.
type ServerOptions struct {
	// Log is the logger for panics, slog.Default() by default.
	Log *slog.Logger
	// MaxMessage bounds a request in bytes, PeerMessageLimit by default.
	MaxMessage int
	// MaxFields bounds the top-level fields of a request, counting each element of a
	// repeated field; no bound by default.
	MaxFields int
	// Deadline is the deadline of unary calls without one, DefaultDeadline by default.
	Deadline time.Duration
	// TLS, if set, is required of callers.
	TLS *tls.Config
	// Stats, if set, sees every call.
	Stats stats.Handler
	// More is passed on to grpc.NewServer.
	More []grpc.ServerOption
}

// Server is a gRPC server with the health service on it.
type Server struct {
	*grpc.Server
	health *health.Server
}

// NewServer returns a server that renders errors like ToStatus, converts a panic to an
// Internal error, sets a deadline for unary calls and answers health checks. Health
// names do not serve until SetServing.
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

// RegisterService registers a service. It refuses a request that is compressed or not
// protobuf as the caller's mistake.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, implementation any) {
	described := *desc
	described.Methods = slices.Clone(desc.Methods)
	for i, m := range described.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		described.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error,
			interceptor grpc.UnaryServerInterceptor) (any, error) {
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
	// gRPC keeps the only request of a server-streaming method until the caller ends
	// its side, and no handler sees it before. With ClientStreams, decodingStream can
	// refuse it at once.
	described.Streams = slices.Clone(desc.Streams)
	for i := range described.Streams {
		described.Streams[i].ClientStreams = true
	}
	s.Server.RegisterService(&described, implementation)
}

// LeaderHealth returns the health name that only the serving leader of a service
// reports as serving.
func LeaderHealth(service string) string { return service + ".leader" }

// SetServing sets whether a health name serves. Clients that were dialed with this name
// call this server only while it does.
func (s *Server) SetServing(name string, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, state)
}

// Shutdown reports every name as not serving, refuses new calls and waits for the calls
// in progress. If ctx ends first, it cancels them and returns the error of ctx.
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
