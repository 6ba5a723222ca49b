package client

import (
	"crypto/tls"
	"net"
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

// maxAnswer bounds one answer, bytes. The gateway joins the findings of three services,
// of which each may take 16 MiB. Gateways of earlier versions do not bound the bytes of
// a page: one of 1,000 reservations with the largest payload each takes 64 MiB.
const maxAnswer = 96 << 20

// silence is how long a gateway may give no word before calls under way there are
// repeated at another: well below the deadlines that callers use.
const silence = 4 * time.Second

// Client speaks to the gateways of one cluster. It is safe for concurrent use;
// one is enough for a process.
type Client struct {
	addresses []string
	closed    chan struct{}
	close     func() error
	backoff   backoff
	onRetry   func(error)

	reservations berthv1.ReservationsClient
	explanations berthv1.ExplanationsClient
	executors    berthv1.ExecutorsClient
	catalog      berthv1.CatalogClient
	usage        berthv1.UsageClient
	findings     berthv1.FindingsClient
	assignments  berthv1.AssignmentsClient
	leaders      berthv1.LeadersClient
	events       berthv1.EventsClient
}

// Option changes how a client is made.
type Option func(*options)

type options struct {
	rpc     rpc.DialOptions
	onRetry func(error)
}

// WithTLS encrypts the connections. Without it they are in the clear, which
// suits loopback and meshes that encrypt by themselves.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.rpc.TLS = config }
}

// WithOnRetry has f told of each failed attempt that will be repeated. It is
// called on the goroutine of the call.
func WithOnRetry(f func(err error)) Option {
	return func(o *options) { o.onRetry = f }
}

// WithStatsHandler has a handler see every call, but not the probes for gateways that
// do not answer. For tracing it is the client handler of OpenTelemetry's otelgrpc with
// the propagator propagation.TraceContext: it takes a span of every call and passes on
// the trace of its context, and the reservation that an upsert makes keeps that trace
// to its end.
func WithStatsHandler(handler stats.Handler) Option {
	return func(o *options) { o.rpc.Stats = handler }
}

// WithDialOptions adds options of gRPC, for interceptors and the like.
func WithDialOptions(more ...grpc.DialOption) Option {
	return func(o *options) { o.rpc.More = append(o.rpc.More, more...) }
}

// Addresses returns gateways as host:port. It accepts URLs too: `http://`, and
// `https://` where TLS is configured. The error is Invalid.
func Addresses(gateways []string, security *tls.Config) ([]string, error) {
	if len(gateways) == 0 {
		return nil, fault.BadField(fault.ReasonRequired, "gateway", "is missing: give host:port or http://host:port")
	}
	list := make([]string, len(gateways))
	for i, gateway := range gateways {
		address := strings.TrimSpace(gateway)
		if scheme, rest, found := strings.Cut(address, "://"); found {
			switch {
			case scheme == "https" && security == nil:
				return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q needs TLS, and no certificates are configured here: give host:port or http://host:port of a gateway without TLS", gateway)
			case scheme == "http" && security != nil:
				return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q is without TLS, and TLS is configured: give host:port or https://host:port", gateway)
			case scheme != "http" && scheme != "https":
				return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q must be host:port or http://host:port", gateway)
			}
			address = strings.TrimSuffix(rest, "/")
		}
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" || strings.Contains(address, "/") {
			return nil, fault.BadField(fault.ReasonInvalid, "gateway", "%q must be host:port or http://host:port", gateway)
		}
		list[i] = address
	}
	return list, nil
}

// Dial makes a client of the gateways at the given addresses, each host:port or
// a URL as Addresses accepts it. It does not wait for a connection: gateways may
// come up later. The error is Invalid for an empty list or any other address.
func Dial(addresses []string, opts ...Option) (*Client, error) {
	// Attempts fail fast, so that the caller's deadline is spent on repeats
	// that can be told of, and not on one call that waits in silence.
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
	conn, err := rpc.Dial(addresses, o.rpc)
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
		reservations: berthv1.NewReservationsClient(conn),
		explanations: berthv1.NewExplanationsClient(conn),
		executors:    berthv1.NewExecutorsClient(conn),
		catalog:      berthv1.NewCatalogClient(conn),
		usage:        berthv1.NewUsageClient(conn),
		findings:     berthv1.NewFindingsClient(conn),
		assignments:  berthv1.NewAssignmentsClient(conn),
		leaders:      berthv1.NewLeadersClient(conn),
		events:       berthv1.NewEventsClient(conn),
	}, nil
}

// Close ends the connections. Calls and streams under way end with an error of
// kind Unavailable. Closing twice is harmless.
func (c *Client) Close() error { return c.close() }
