package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	xrate "golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

// MetaCaller is the metadata in which a gateway passes on the identity of a caller.
const MetaCaller = "berth-caller"

// Caller is the caller of a method.
type Caller struct {
	// Peer is the address of the other end of the connection.
	Peer string
	// Trusted is true for a caller in plain text, which has every role of its listener.
	Trusted bool
	// Identity is nil for a trusted caller, and for a caller without a certificate and
	// without a bearer token.
	Identity *identity.Identity
	// passed is true if a gateway has passed on the identity.
	passed bool
}

// String describes the caller for logs and errors.
func (c Caller) String() string {
	switch {
	case c.Identity != nil:
		return c.Identity.String()
	case c.Trusted:
		return "trusted"
	}
	return "nobody"
}

type callerKey struct{}

// CallerIn returns the caller of a request that a Guard has admitted. Without a guard it is
// trusted.
func CallerIn(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Caller{Trusted: true}
}

// Passed returns the value of MetaCaller with which a gateway passes the caller on; "" for a
// caller without an identity.
func (c Caller) Passed() string {
	if c.Identity == nil {
		return ""
	}
	return c.Identity.String()
}

// Guard admits the calls of one listener by the table.
type Guard struct {
	Listener Listener
	// Cluster is the cluster to which identities belong.
	Cluster string
	// Access is nil without an access file.
	Access *Access
	// Audit is nil without an audit log.
	Audit *Audit
	Log   *slog.Logger
	// Lines, if set, limits the log lines about rejected calls, which any caller can cause.
	Lines *xrate.Limiter
	// Rejected, if set, counts the rejected calls.
	Rejected *atomic.Int64
}

// bearers has the listeners that accept bearer tokens.
const bearers = Public | Operations

// identify returns the caller of a request.
func (g *Guard) identify(ctx context.Context, from transport.Peer, address, authorization string,
	passed []string) (Caller, error) {
	c := Caller{Peer: address, Trusted: !from.Encrypted, Identity: from.Identity}
	scheme, bearer, _ := strings.Cut(authorization, " ")
	switch {
	case authorization == "" || g.Listener&bearers == 0 || c.Trusted && g.Access == nil:
	case !strings.EqualFold(scheme, "bearer"):
		return c, denied("authorization: must be a bearer token")
	default:
		c.Trusted, c.Identity = false, nil
		id, err := g.Access.token(ctx, strings.TrimSpace(bearer))
		if err != nil {
			return c, err
		}
		c.Identity = &id
	}
	if g.Listener == Service && len(passed) > 0 && (c.Trusted || c.Identity.Role == gateway) {
		id, err := identity.Parse(passed[0])
		if err != nil || len(passed) > 1 || id.Cluster != g.Cluster {
			return c, denied("%s: must be one identity of the cluster %q, got %q", MetaCaller, g.Cluster, passed)
		}
		// The row of the gateway's own listener applies to the caller, and the row of this
		// listener applied to the gateway.
		c.Identity, c.Trusted, c.passed = &id, false, true
	}
	return c, nil
}

// admit returns an error if the caller has none of the roles that the method needs.
func (g *Guard) admit(c Caller, from transport.Peer, method string) error {
	r, known := table[method]
	may, served := r.roles[g.Listener]
	switch {
	case !known, !served:
		return g.Listener.misdirected(method)
	case c.passed:
		if from.Encrypted && from.Identity.Role&may == 0 {
			return missing(method, may, Caller{Identity: from.Identity}.has())
		}
		may = r.roles[Public] | r.roles[Agents] | r.roles[Internal]
		if may == identity.Nobody {
			return nil // the gateway calls this method to answer another one
		}
	}
	if may == everybody || c.Trusted || c.Identity != nil && c.Identity.Role&may != 0 {
		return nil
	}
	return missing(method, may, c.has())
}

// has says which role the caller has, for errors.
func (c Caller) has() string {
	if c.Identity == nil {
		return "the caller has no certificate and no bearer token"
	}
	return fmt.Sprintf("the caller %v has the role %v", c.Identity, c.Identity.Role)
}

// missing returns the error that names the missing role.
func missing(method string, may identity.Role, why string) error {
	if may == identity.Nobody {
		return denied("%s", why)
	}
	return denied("%s requires the role %v; %s", strings.TrimPrefix(method, "/"), may, why)
}

// everywhere reports whether the role job may call a method without naming a job.
func everywhere(method string) bool {
	return strings.HasPrefix(method, "/berth.v1.Catalog/") || strings.HasPrefix(method, "/berth.v1.Tenants/")
}

// Scope returns an error if a request is for a job or an executor that does not belong to
// its caller.
func Scope(c Caller, method string, request proto.Message) error {
	if c.Identity == nil || request == nil {
		return nil
	}
	if at := table[method].roles; c.passed && at[Public]|at[Agents]|at[Internal] == identity.Nobody {
		return nil // the gateway calls this method to answer another one, which it has checked
	}
	switch id := *c.Identity; id.Role {
	case job:
		if name := jobIn(request); !everywhere(method) && !id.CoversJob(name) {
			return denied("job: the caller %v may name only jobs that the prefix %q covers, got %q", id, id.Name, name)
		}
	case agent:
		if name := textIn(request.ProtoReflect(), "id"); !id.CoversExecutor(name) {
			return denied("id: the caller %v may act only for its own executor, got %q", id, name)
		}
	}
	return nil
}

// scoped reports whether the requests of a caller are limited to own jobs or executors.
func (c Caller) scoped() bool { return c.Identity != nil && c.Identity.Role&(job|agent) != 0 }

// ServerOptions returns the options of a gRPC server on the listener. They must come before
// interceptors that need the caller.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream)}
}

// enter identifies and admits the caller of a gRPC method.
func (g *Guard) enter(ctx context.Context, method string) (context.Context, Caller, error) {
	var from transport.Peer
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		from, address = peerIn(p), p.Addr.String()
	}
	authorization := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		authorization = values[0]
	}
	c, err := g.identify(ctx, from, address, authorization, metadata.ValueFromIncomingContext(ctx, MetaCaller))
	if err == nil {
		err = g.admit(c, from, method)
	} else {
		err = missing(method, table[method].roles[g.Listener], err.Error())
	}
	if err == nil && g.Listener == Public && c.Identity != nil && table[method].roles[Public] != everybody {
		err = g.Access.pace(*c.Identity)
	}
	return rpc.WithRevision(context.WithValue(ctx, callerKey{}, c)), c, err
}

// peerIn returns the peer of a call. Wrappers of the credentials embed it in their AuthInfo.
func peerIn(p *peer.Peer) transport.Peer {
	switch info := p.AuthInfo.(type) {
	case transport.Peer:
		return info
	case interface{ Peer() transport.Peer }:
		return info.Peer()
	}
	return transport.Peer{}
}

func (g *Guard) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (answer any, err error) {
	ctx, c, err := g.enter(ctx, info.FullMethod)
	message, _ := request.(proto.Message)
	defer func() { g.record(ctx, c, info.FullMethod, message, err) }()
	if err == nil {
		err = Scope(c, info.FullMethod, message)
	}
	if err != nil {
		return nil, err
	}
	answer, err = handler(ctx, request)
	if trailer := rpc.RevisionTrailer(ctx); g.Listener == Service && trailer != nil {
		_ = grpc.SetTrailer(ctx, trailer) // it fails only after the call
	}
	return answer, err
}

func (g *Guard) stream(srv any, in grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	ctx, c, err := g.enter(in.Context(), info.FullMethod)
	s := &stream{ServerStream: in, ctx: ctx, caller: c, method: info.FullMethod,
		decode: g.Audit.wants(info.FullMethod) || c.scoped()}
	defer func() { g.record(ctx, c, info.FullMethod, s.first(), err) }()
	if err != nil {
		return err
	}
	return handler(srv, s)
}

// stream checks the first message of a call.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	caller Caller
	method string
	decode bool // whether the first message is decoded

	mu      sync.Mutex
	message proto.Message
	checked bool
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) first() proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.message
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || !s.decode {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked {
		return nil
	}
	s.checked = true
	switch m := m.(type) {
	case proto.Message:
		s.message = m
	case *rpc.Frame:
		var err error
		if s.message, err = decode(s.method, m.Bytes); err != nil {
			return err
		}
	}
	return Scope(s.caller, s.method, s.message)
}

// decode decodes the request of a method.
func decode(method string, frame []byte) (proto.Message, error) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, nil // the server answers that it has no such method
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(found.(protoreflect.MethodDescriptor).Input().FullName())
	if err != nil {
		return nil, nil
	}
	request := kind.New().Interface()
	if err := proto.Unmarshal(frame, request); err != nil {
		return nil, fmt.Errorf("the request of %s cannot be decoded: %w", method, err)
	}
	return request, nil
}

// HTTP returns a handler that admits the requests of a listener before next handles them.
// Requests for the paths of operations need the roles of their own rows. For other paths,
// next must call Check once it knows the method. reject writes an error.
func (g *Guard) HTTP(next http.Handler, reject func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := transport.PeerIn(r.Context())
		c, err := g.identify(r.Context(), from, r.RemoteAddr, r.Header.Get("Authorization"), nil)
		ctx := rpc.WithRevision(context.WithValue(r.Context(), callerKey{}, c))
		method := "GET " + r.URL.Path // the verb of the rows, for every verb
		if strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
			method = "GET /debug/pprof/"
		}
		own, known := table[method]
		switch {
		case err != nil:
			err = missing(method, own.roles[g.Listener], err.Error())
		case known:
			err = g.admit(c, from, method)
		}
		if err == nil && c.Identity != nil && own.roles[g.Listener] != everybody {
			err = g.Access.pace(*c.Identity)
		}
		if err != nil {
			g.record(ctx, c, method, nil, err)
			reject(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Check admits a request that arrived over HTTP, calls the method and records the call.
func (g *Guard) Check(ctx context.Context, method string, request proto.Message, call func() error) (err error) {
	c := CallerIn(ctx)
	defer func() { g.record(ctx, c, method, request, err) }()
	if err := g.admit(c, transport.Peer{}, method); err != nil {
		return err
	}
	if err := Scope(c, method, request); err != nil {
		return err
	}
	return call()
}

// misdirected returns the error for a method that the listener does not serve. If another
// listener of a gateway serves the method, the error names its option.
func (l Listener) misdirected(fullMethod string) error {
	method := strings.TrimPrefix(fullMethod, "/")
	r, known := table[fullMethod]
	if !known {
		return status.Errorf(codes.Unimplemented, "Berth has no method %s", fullMethod)
	}
	meta := map[string]string{rpc.MetaCalled: l.String()}
	message := method + " is not served by gateways"
	for _, other := range []Listener{Public, Agents, Internal} {
		if _, serves := r.roles[other]; serves {
			meta[rpc.MetaServed] = other.String()
			message = method + " is served on " + other.String()
		}
	}
	refusal, err := status.New(codes.Unimplemented, message).WithDetails(&errdetails.ErrorInfo{
		Reason: string(fault.ReasonUnsupported), Domain: fault.Domain, Metadata: meta,
	})
	if err != nil {
		panic(err) // all of it is valid text
	}
	return refusal.Err()
}
