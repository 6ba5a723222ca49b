package client

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// maxAnswer is the maximum size of an answer in bytes. The gateway joins the findings of
// three services, and the findings of each service may have 16 MiB. Gateways of earlier
// versions do not limit the size of a page: a page of 1,000 reservations with the largest
// payload has 64 MiB.
const maxAnswer = 96 << 20

// silence is the time after which a gateway that does not answer counts as down. Then the
// client repeats the calls to this gateway at another gateway. The time is well below the
// usual deadlines of callers.
const silence = 4 * time.Second

// Client is a client of the gateways of one cluster. It is safe for concurrent use, so
// one client is enough for a process.
type Client struct {
	addresses []string
	closed    chan struct{}
	close     func() error
	backoff   backoff
	onRetry   func(error)
	encrypted bool

	reservations berthv1.ReservationsClient
	explanations berthv1.ExplanationsClient
	executors    berthv1.ExecutorsClient
	catalog      berthv1.CatalogClient
	usage        berthv1.UsageClient
	findings     berthv1.FindingsClient
	assignments  berthv1.AssignmentsClient
	leaders      berthv1.LeadersClient
	events       berthv1.EventsClient
	tenants      berthv1.TenantsClient
	outputs      berthv1.OutputsClient
	volumes      berthv1.VolumesClient
	callers      berthv1.CallersClient
	audit        berthv1.AuditLogClient
}

// Option configures a client.
type Option func(*options)

type options struct {
	rpc     rpc.DialOptions
	onRetry func(error)
}

// WithTLS returns an option that encrypts the connections. A certificate in the
// configuration proves the role of the caller. Without WithTLS the connections are in plain
// text, which is sufficient on loopback and in a service mesh that encrypts.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.rpc.TLS = config }
}

// WithToken returns an option that sends a bearer token with every call, as proof of the
// caller's role. The client calls source for each call, also for each attempt to repeat it,
// so source should cache a token that takes long to get. It may be called concurrently. An
// error of source ends the call with an error of kind Denied.
//
// The client sends tokens only with TLS: without [WithTLS], Dial returns an error of kind
// Invalid.
func WithToken(source func(ctx context.Context) (string, error)) Option {
	return func(o *options) { o.rpc.Credentials = token(source) }
}

// WithProxy returns an option that connects to gateways through HTTP proxies (CONNECT). proxy
// returns the proxy for an address, host:port, or the zero value for a direct connection; it may be
// called concurrently. Errors name the proxy. Without WithProxy the client connects directly, also
// if the environment has HTTPS_PROXY.
func WithProxy(proxy func(address string) rpc.Proxy) Option {
	return func(o *options) { o.rpc.Proxy = proxy }
}

// WithOnRetry returns an option that calls f with the error of each failed attempt that
// the client will repeat. It calls f on the goroutine of the call.
func WithOnRetry(f func(err error)) Option {
	return func(o *options) { o.onRetry = f }
}

// WithStatsHandler returns an option that passes every call to a stats handler, except
// the probes that detect silent gateways. For tracing, use the client handler of
// OpenTelemetry's otelgrpc with the propagator propagation.TraceContext. This handler
// creates a span for every call and propagates the trace. A reservation keeps the trace
// of its upsert until its end.
func WithStatsHandler(handler stats.Handler) Option {
	return func(o *options) { o.rpc.Stats = handler }
}

// WithDialOptions returns an option that adds gRPC options, such as interceptors.
func WithDialOptions(more ...grpc.DialOption) Option {
	return func(o *options) { o.rpc.More = append(o.rpc.More, more...) }
}

// Addresses returns the addresses of gateways as host:port. It also accepts URLs that
// start with `http://`, or with TLS `https://`, whose default ports are 80 and 443. A URL may
// have the base path below which a proxy serves the gateway; then the address is
// host:port/path, which only Dial accepts. The error is Invalid.
func Addresses(gateways []string, security *tls.Config) ([]string, error) {
	if len(gateways) == 0 {
		return nil, fault.BadField(fault.ReasonRequired, "gateway", "is required: host:port or http://host:port")
	}
	list := make([]string, len(gateways))
	for i, gateway := range gateways {
		address := strings.TrimSpace(gateway)
		if scheme, rest, found := strings.Cut(address, "://"); found {
			switch {
			case scheme == "https" && security == nil:
				return nil, fault.BadField(fault.ReasonInvalid, "gateway",
					"%q needs TLS, which is not configured: use host:port or http://host:port of a gateway without TLS", gateway)
			case scheme == "http" && security != nil:
				return nil, fault.BadField(fault.ReasonInvalid, "gateway",
					"%q is without TLS, but TLS is configured: use host:port or https://host:port", gateway)
			case scheme != "http" && scheme != "https":
				return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q must be host:port or http://host:port", gateway)
			}
			host, path, _ := strings.Cut(rest, "/")
			if !strings.Contains(host[strings.LastIndex(host, "]")+1:], ":") && host != "" {
				host += map[string]string{"http": ":80", "https": ":443"}[scheme]
			}
			address = host + "/" + path
		}
		address = strings.TrimRight(address, "/")
		host, base := cutBase(address)
		if base != "" {
			if problem := rpc.CheckBase(base); problem != "" {
				return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q: the path %s", gateway, problem)
			}
		}
		if problem := rpc.CheckAddress(host); problem != "" {
			_, reason, _ := strings.Cut(problem, "host:port")
			return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q must be host:port or http://host:port%s", gateway, reason)
		}
		list[i] = address
	}
	return list, nil
}

// cutBase returns the host and port of an address, and its base path.
func cutBase(address string) (host, base string) {
	if at := strings.IndexByte(address, '/'); at >= 0 {
		return address[:at], address[at:]
	}
	return address, ""
}

// Dial returns a client of the gateways at the given addresses, each host:port or a URL
// that Addresses accepts. All must have the same base path. The names of gRPC methods are
// paths, so the client puts the base path before them: a proxy must pass HTTP/2 on, and may
// remove the base path or keep it for a gateway with --base-path.
//
// Dial does not wait for a connection, so the gateways may start later. The error is Invalid
// for an empty list or an invalid address.
func Dial(addresses []string, opts ...Option) (*Client, error) {
	// Attempts fail fast, so that a call uses its deadline for several attempts, which
	// OnRetry reports, and not for one attempt that waits.
	o := options{
		rpc:     rpc.DialOptions{FailFast: true, Silence: silence, MaxMessage: maxAnswer},
		onRetry: func(error) {},
	}
	for _, opt := range opts {
		opt(&o)
	}
	addresses, err := Addresses(addresses, o.rpc.TLS)
	if err != nil {
		return nil, err
	}
	if o.rpc.Credentials != nil && o.rpc.TLS == nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid,
			"a bearer token is sent only with TLS, which is not configured: anyone on the network could read the token")
	}
	hosts := make([]string, len(addresses))
	for i, address := range addresses {
		var base string
		if hosts[i], base = cutBase(address); i == 0 {
			o.rpc.Base = base
		} else if base != o.rpc.Base {
			return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q and %q must have the same path", addresses[0],
				address)
		}
	}
	conn, err := rpc.Dial(hosts, o.rpc)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	return &Client{
		closed: closed,
		close: sync.OnceValue(func() error {
			close(closed)
			return conn.Close()
		}),
		addresses:    slices.Clone(addresses),
		backoff:      defaultBackoff,
		onRetry:      o.onRetry,
		encrypted:    o.rpc.TLS != nil,
		reservations: berthv1.NewReservationsClient(conn),
		explanations: berthv1.NewExplanationsClient(conn),
		executors:    berthv1.NewExecutorsClient(conn),
		catalog:      berthv1.NewCatalogClient(conn),
		usage:        berthv1.NewUsageClient(conn),
		findings:     berthv1.NewFindingsClient(conn),
		assignments:  berthv1.NewAssignmentsClient(conn),
		leaders:      berthv1.NewLeadersClient(conn),
		events:       berthv1.NewEventsClient(conn),
		tenants:      berthv1.NewTenantsClient(conn),
		outputs:      berthv1.NewOutputsClient(conn),
		volumes:      berthv1.NewVolumesClient(conn),
		callers:      berthv1.NewCallersClient(conn),
		audit:        berthv1.NewAuditLogClient(conn),
	}, nil
}

// Close closes the connections. Calls and streams in progress end with an error of kind
// Unavailable. Close may be called more than once.
func (c *Client) Close() error { return c.close() }
