package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
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
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
	"berth.dev/pkg/wire"
)

// MetaCaller is the metadata in which a gateway passes on the identity of a caller.
const MetaCaller = "berth-caller"

// DeleteProofs deletes the proofs and claims of a caller from the metadata of its call, so that
// a gateway does not pass them on.
func DeleteProofs(md metadata.MD) {
	delete(md, MetaCaller)
	for _, key := range []string{"authorization", "cookie"} {
		delete(md, key)
		delete(md, "grpcgateway-"+key)
	}
}

// Caller is the caller of a method.
type Caller struct {
	// Peer is the address of the other end of the connection.
	Peer string
	// Trusted is true for a caller in plain text, which has every role of its listener.
	Trusted bool
	// Identity is nil for a trusted caller, and for a caller without a certificate and
	// without a bearer token.
	Identity *identity.Identity
	// Session is true if the proof of the caller is the cookie of a browser's session.
	Session bool
	// passed is true if a gateway has passed on the identity.
	passed bool
	// unproven is set if the caller's proof was not accepted or could not be verified. The error for a call of the caller
	// then has it, together with the role that the method needs.
	unproven error
}

// String describes the caller for logs and errors.
func (c Caller) String() string {
	switch {
	case c.Identity != nil:
		return c.Identity.String()
	case c.Trusted:
		return "trusted"
	}
	return nobody
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

// Repeat returns the context of another request of a caller whose stream a Guard has admitted.
// The request counts for the caller's tenant. It fails if the tenant sends too many requests.
func (g *Guard) Repeat(ctx context.Context, c Caller) (context.Context, error) {
	if c.isJob() {
		if err := g.Access.pace(c.Identity.Name, ""); err != nil {
			return nil, err
		}
	}
	return rpc.WithRevision(context.WithValue(ctx, callerKey{}, c)), nil
}

// Job returns the name of a caller with the role job, which is a prefix of its jobs; "" for any
// other caller.
func (c Caller) Job() string {
	if !c.isJob() {
		return ""
	}
	return c.Identity.Name
}

// Guard admits the calls of one listener by the table.
type Guard struct {
	Listener Listener
	// Cluster is the cluster to which identities belong.
	Cluster string
	// Base is the base path of the gateway, which the cookies of sessions have.
	Base string
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
	case known && !served && c.Identity != nil && c.Identity.Role&r.any() == 0:
		return missing(method, r.any(), c.has())
	case !known, !served:
		return g.Listener.misdirected(method)
	case c.unproven != nil && !(c.Session && may == everybody):
		return g.unidentified(method, c.unproven)
	case c.passed:
		if from.Encrypted && from.Identity.Role&may == 0 {
			return missing(method, may, Caller{Identity: from.Identity}.has())
		}
		may = r.roles[Public] | r.roles[Agents] | r.roles[Internal]
		if may == identity.Nobody {
			return nil // the gateway calls this method to answer another one
		}
	}
	if c.is(may) {
		return nil
	}
	return missing(method, may, c.has())
}

// is reports whether the caller has one of the roles.
func (c Caller) is(may identity.Role) bool {
	return may == everybody || c.Trusted || c.Identity != nil && c.Identity.Role&may != 0
}

// Methods returns the names of the methods that the caller's role may call on a listener,
// sorted and without the first slash.
func (c Caller) Methods(at Listener) (names []string) {
	for method, r := range table {
		if may, served := r.roles[at]; served && c.is(may) {
			names = append(names, strings.TrimPrefix(method, "/"))
		}
	}
	slices.Sort(names)
	return names
}

// has says which role the caller has, for errors.
func (c Caller) has() string {
	if c.Identity == nil {
		return "the caller has no certificate and no bearer token"
	}
	return fmt.Sprintf("the caller %v has the role %v", c.Identity, c.Identity.Role)
}

// unidentified returns the error of a call whose caller could not be identified. It names
// the missing role, unless the reason is that an issuer does not answer.
func (g *Guard) unidentified(method string, err error) error {
	if !isDenied(err) {
		return err
	}
	return missing(method, table[method].roles[g.Listener], fault.Of(err).Message)
}

// missing returns the error that names the missing role.
func missing(method string, may identity.Role, why string) error {
	if may == identity.Nobody || may == everybody {
		return denied("%s", why)
	}
	return denied("%s requires the role %v; %s", strings.TrimPrefix(method, "/"), may, why)
}

// everywhere reports whether the role job may call a method without naming a job. The lists
// of jobs and of tenants then have only the jobs and the tenants of the caller.
func everywhere(method string) bool {
	return method == berthv1.Reservations_ListJobs_FullMethodName || strings.HasPrefix(method, "/berth.v1.Catalog/") ||
		strings.HasPrefix(method, "/berth.v1.Tenants/")
}

// scope returns an error if a request is about a job or an executor that does not belong to
// its caller.
func scope(c Caller, method string, about subject) error {
	if c.Identity == nil {
		return nil
	}
	at := table[method].roles
	if at[Public] == everybody || strings.HasPrefix(method, "/grpc.") {
		return nil // health checks, reflection and the like name no job and no executor
	}
	if c.passed && at[Public]|at[Agents]|at[Internal] == identity.Nobody {
		return nil // the gateway calls this method to answer another one, which it has checked
	}
	switch id := *c.Identity; id.Role {
	case job:
		if !everywhere(method) && !id.CoversJob(about.job) {
			others := (at[Public] | at[Agents] | at[Internal]) &^ job
			return denied("job: the caller %v may name only jobs that the prefix %q covers, got %q; other jobs require the role %v",
				id, id.Name, about.job, others)
		}
	case agent:
		if !id.CoversExecutor(about.id) {
			return denied("id: the caller %v may act only for its own executor, got %q", id, about.id)
		}
	}
	return nil
}

// check returns an error if the caller may not make an admitted call for this subject.
func (g *Guard) check(c Caller, method string, about subject) error {
	err := scope(c, method, about)
	if err == nil && c.isJob() && g.Listener == Public {
		err = g.Access.pace(about.job, c.Identity.Name)
	}
	return err
}

func (c Caller) isJob() bool { return c.Identity != nil && c.Identity.Role == job }

// scoped reports whether the requests of a caller are limited to own jobs or executors.
func (c Caller) scoped() bool { return c.Identity != nil && c.Identity.Role&(job|agent) != 0 }

// ServerOptions returns the options of a gRPC server on the listener. They must come before
// interceptors that need the caller.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream)}
	if g.Listener&(Internal|Service|Agent) != 0 {
		options = append(options, grpc.InTapHandle(g.tap))
	}
	return options
}

// tap rejects a call before its messages are read and decoded, so that a caller without the
// role cannot use the memory of this process. Listeners for unknown callers limit the memory
// of all calls together instead; there, tap would wait for the issuers of bearer tokens.
func (g *Guard) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	admitted, c, err := g.enter(ctx, info.FullMethodName)
	switch {
	case err == nil:
		return admitted, nil
	case !isDenied(err):
		return ctx, nil // the interceptors return the error, with its details
	}
	g.record(admitted, c, info.FullMethodName, subject{}, err)
	if p, ok := peer.FromContext(ctx); ok {
		peerIn(p).CountRejected()
	}
	return ctx, rpc.ToStatus(err)
}

// enter identifies and admits the caller of a gRPC method, unless tap has done so.
func (g *Guard) enter(ctx context.Context, method string) (context.Context, Caller, error) {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return ctx, c, nil
	}
	from, address := transport.Unknown, ""
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
		err = g.unidentified(method, err)
	}
	if err == nil && c.isJob() && g.Listener == Public && table[method].roles[Public] != everybody {
		err = g.Access.pace(c.Identity.Name, "")
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
	return transport.Unknown
}

func (g *Guard) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (answer any, err error) {
	ctx, c, err := g.enter(ctx, info.FullMethod)
	if err != nil && !isDenied(err) {
		return nil, err // the call had no effect
	}
	var about subject
	if err != nil || g.needsSubject(c, info.FullMethod) {
		message, _ := request.(proto.Message)
		about = subjectOf(message)
	}
	defer func() { g.record(ctx, c, info.FullMethod, about, err) }()
	if err == nil {
		err = g.check(c, info.FullMethod, about)
	}
	if err == nil {
		err = refuseUnknown(info.FullMethod, request)
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

// refuseUnknown returns an error if a public request that changes something has a field of a later
// version: the service would ignore what the caller wants. Other services and agents may be newer.
func refuseUnknown(method string, request any) error {
	row := table[method]
	message, ok := request.(proto.Message)
	if _, public := row.roles[Public]; !ok || !public || !row.changes {
		return nil
	}
	return wire.RefuseUnknown(message)
}

// needsSubject reports whether the subject of an admitted call must be known.
func (g *Guard) needsSubject(c Caller, method string) bool {
	return g.Audit.wants(method) || c.scoped()
}

func (g *Guard) stream(srv any, in grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	ctx, c, err := g.enter(in.Context(), info.FullMethod)
	if err != nil && !isDenied(err) {
		return err // the call had no effect
	}
	s := &stream{ServerStream: in, ctx: ctx, guard: g, caller: c, method: info.FullMethod,
		checked: !g.needsSubject(c, info.FullMethod)}
	defer func() { g.record(ctx, c, info.FullMethod, s.subject(), err) }()
	if err != nil {
		return err
	}
	return handler(srv, s)
}

// stream checks the first message of a call.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	guard  *Guard
	caller Caller
	method string

	mu      sync.Mutex
	about   subject
	checked bool
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) subject() subject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked {
		return nil
	}
	s.checked = true
	var err error
	if s.about, err = first(s.method, m); err != nil {
		return err
	}
	return s.guard.check(s.caller, s.method, s.about)
}

// identifyHTTP returns the caller of a request over HTTP. On the public listener, the cookie
// of a session has the bearer token of a request without an Authorization header.
func (g *Guard) identifyHTTP(r *http.Request, from transport.Peer) (Caller, error) {
	authorization, session := r.Header.Get("Authorization"), false
	if _, given := r.Header["Authorization"]; !given && g.Listener == Public && g.Access != nil {
		token, err := g.sessionToken(r, from.Encrypted)
		if err != nil {
			return Caller{Peer: r.RemoteAddr, Session: true}, err
		}
		if session = token != ""; session {
			authorization = "Bearer " + token
		}
	}
	c, err := g.identify(r.Context(), from, r.RemoteAddr, authorization, nil)
	c.Session = session
	return c, err
}

// methodOf returns the name of a request's method in the table. The verb of most rows is GET,
// for every verb of a request.
func methodOf(r *http.Request) string {
	if method := r.Method + " " + r.URL.Path; table[method].roles != nil {
		return method
	}
	if strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
		return "GET /debug/pprof/"
	}
	return "GET " + r.URL.Path
}

// HTTP returns a handler that admits the requests of a listener before next handles them.
// Requests for the paths of operations and sessions need the roles of their own rows. For
// other paths, next must call Check once it knows the method. reject writes an error. next
// gets no cookies.
//
// The token in a cookie may have expired, or its issuer may not answer. The caller then has no
// identity, and may still make the calls for everybody, with which a page gets a new session.
func (g *Guard) HTTP(next http.Handler, reject func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := transport.PeerIn(r.Context())
		c, err := g.identifyHTTP(r, from)
		r.Header.Del("Cookie")
		ctx := rpc.WithRevision(context.WithValue(r.Context(), callerKey{}, c))
		method := methodOf(r)
		may, served := table[method].roles[g.Listener]
		switch {
		case err != nil && c.Session && may == everybody:
			err = nil
		case err != nil && (c.Session || isDenied(err)) && !served:
			c.unproven, err = err, nil // Check rejects the call, once the method is known
			ctx = context.WithValue(ctx, callerKey{}, c)
		case err != nil:
			err = g.unidentified(method, err)
		case served:
			err = g.admit(c, from, method)
		}
		if err == nil && c.isJob() && may != everybody {
			err = g.Access.pace(c.Identity.Name, "")
		}
		if err != nil {
			g.record(ctx, c, r.Method+" "+r.URL.Path, subject{}, err)
			reject(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Check admits a request that arrived over HTTP, calls the method and records the call.
func (g *Guard) Check(ctx context.Context, method string, request proto.Message, call func() error) (err error) {
	c, about := CallerIn(ctx), subjectOf(request)
	defer func() { g.record(ctx, c, method, about, err) }()
	if err := g.admit(c, transport.Unknown, method); err != nil {
		return err
	}
	if err := g.check(c, method, about); err != nil {
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

// RecordRejected records that the handler of HTTP rejected a request with an error.
func (g *Guard) RecordRejected(r *http.Request, err error) {
	g.record(r.Context(), CallerIn(r.Context()), r.Method+" "+r.URL.Path, subject{}, err)
}
