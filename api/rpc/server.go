package rpc

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

// The limits of messages and the default deadline of calls.
const (
	// PeerMessageLimit is the maximum size of a message between Berth's own processes, in
	// bytes. The largest messages are scheduling cycles, with the heads of all queues, and
	// their answers.
	PeerMessageLimit = 16 << 20
	// PublicMessageLimit is the maximum size of a message at the gateway, in bytes. It is 1
	// MiB, the maximum of a REST body, and additional space for the binary form and the
	// names in the path.
	PublicMessageLimit = 1<<20 + 64<<10
	// DefaultDeadline is the time limit of unary calls without a deadline.
	DefaultDeadline = 30 * time.Second
)

// ServerOptions configures a server. The zero value configures a server for Berth's own
// processes, in plain text.
type ServerOptions struct {
	// Log is the logger for panics, slog.Default() by default.
	Log *slog.Logger
	// MaxMessage is the maximum size of a request in bytes, PeerMessageLimit by default.
	MaxMessage int
	// MaxFields is the maximum number of top-level fields of a request, counting each
	// element of a repeated field. By default there is no limit.
	MaxFields int
	// Deadline is the time limit of unary calls without a deadline, DefaultDeadline by
	// default.
	Deadline time.Duration
	// Stats, if set, is the stats handler of every call.
	Stats stats.Handler
	// Base, if set, is a path such as /berth that may precede the paths of all methods; see
	// CheckBase.
	Base string
	// More is passed on to grpc.NewServer.
	More []grpc.ServerOption
}

// Server is a gRPC server that also serves the health service.
type Server struct {
	*grpc.Server
	health *health.Server
	base   string
}

// NewServer returns a server that converts errors with ToStatus, converts a panic to an
// Internal error, sets a deadline for unary calls and answers health checks. It reports a
// registered service as serving, and any other health name only after SetServing.
func NewServer(o ServerOptions) *Server {
	e := edge{log: cmp.Or(o.Log, slog.Default()), deadline: cmp.Or(o.Deadline, DefaultDeadline)}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(frameCodec{encoding.GetCodecV2(proto.Name), o.MaxFields}),
		grpc.ChainUnaryInterceptor(e.unary),
		grpc.ChainStreamInterceptor(e.stream),
		grpc.MaxRecvMsgSize(cmp.Or(o.MaxMessage, PeerMessageLimit)),
		// Clients ping every 10 s, the shortest interval of grpc-go.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	}
	if o.Base != "" {
		options = append([]grpc.ServerOption{grpc.ChainStreamInterceptor(atBase(o.Base))}, options...)
	}
	if o.Stats != nil {
		options = append(options, grpc.StatsHandler(o.Stats))
	}
	s := &Server{grpc.NewServer(append(options, o.More...)...), health.NewServer(), o.Base}
	healthpb.RegisterHealthServer(s, s.health)
	return s
}

// RegisterService registers a service. The server refuses a request that is compressed or
// not valid protobuf with an error of kind Invalid.
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
	// gRPC passes the only request of a server-streaming method to the handler only after
	// the caller has closed its side. With ClientStreams, decodingStream can refuse an
	// invalid request at once.
	described.Streams = slices.Clone(desc.Streams)
	for i := range described.Streams {
		described.Streams[i].ClientStreams = true
	}
	s.Server.RegisterService(&described, implementation)
	if s.base != "" {
		below := described
		below.ServiceName = strings.TrimPrefix(s.base, "/") + "/" + desc.ServiceName
		s.Server.RegisterService(&below, implementation)
	}
	s.SetServing(desc.ServiceName, true)
}

// LeaderHealth returns the health name that only the serving leader of a service
// reports as serving.
func LeaderHealth(service string) string { return service + ".leader" }

// SetServing sets whether the server reports a health name as serving. Clients with this
// name in DialOptions.Health call this server only while the name is serving.
func (s *Server) SetServing(name string, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus(name, state)
}

// Shutdown reports every health name as not serving, refuses new calls and waits for the
// calls in progress. If ctx ends first, Shutdown cancels these calls and returns the
// cause of the end of ctx.
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
