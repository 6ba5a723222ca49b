package rpcstats

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// untraced sees the calls of a process that traces nothing: it takes how long
// they last, under the names and with the labels of otelgrpc, and hands their
// traceparent on. otelgrpc itself prepares a span of each call and copies its
// headers before it learns that nobody wants them, and makes the labels anew.
type untraced struct {
	client   bool
	duration metric.Float64Histogram // nil where nobody wants it

	labels sync.Map // labels → metric.MeasurementOption
	known  atomic.Int32
}

// labels name a call of the figures.
type labels struct {
	method, peer string
	code         codes.Code
}

// maxLabels bounds what is kept: addresses of peers come and go.
const maxLabels = 1000

// call is what is known of one under way.
type call struct{ method, peer string }

type callKey struct{}

func newUntraced(client bool, meters metric.MeterProvider) *untraced {
	h := &untraced{client: client}
	if meters == nil {
		return h
	}
	name, what := "rpc.server.call.duration", "Measures the duration of an incoming Remote Procedure Call (RPC)."
	if client {
		name, what = "rpc.client.call.duration", "Measures the duration of an outgoing Remote Procedure Call (RPC)."
	}
	duration, err := meters.Meter("berth.dev/pkg/rpcstats").Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	if err != nil {
		duration = metricnoop.Float64Histogram{} // the name is a constant, so that it is not
	}
	h.duration = duration
	return h
}

// TagConn and HandleConn implement stats.Handler: connections are not looked at.
func (*untraced) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*untraced) HandleConn(context.Context, stats.ConnStats)                       {}

// TagRPC implements stats.Handler.
func (h *untraced) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if h.client {
		ctx = withTraceparent(ctx)
	} else {
		ctx = withTraceOf(ctx)
	}
	if h.duration == nil || !h.client && !known(info) {
		return ctx
	}
	method := info.FullMethodName
	if method != "" && method[0] == '/' {
		method = method[1:]
	}
	return context.WithValue(ctx, callKey{}, &call{method: method})
}

// withTraceparent hands the trace of a context on to whom is called.
func withTraceparent(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	md, _ := metadata.FromOutgoingContext(ctx)
	if md == nil {
		md = metadata.MD{}
	}
	for key, value := range carrier {
		md.Set(key, value)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// withTraceOf takes the trace of who calls.
func withTraceOf(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	for _, key := range (propagation.TraceContext{}).Fields() {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			carrier.Set(key, values[0])
		}
	}
	if len(carrier) == 0 {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

// HandleRPC implements stats.Handler.
func (h *untraced) HandleRPC(ctx context.Context, what stats.RPCStats) {
	switch s := what.(type) {
	case *stats.OutHeader:
		if c, ok := ctx.Value(callKey{}).(*call); ok && h.client && s.RemoteAddr != nil {
			c.peer = s.RemoteAddr.String()
		}
	case *stats.End:
		if c, ok := ctx.Value(callKey{}).(*call); ok {
			h.duration.Record(ctx, s.EndTime.Sub(s.BeginTime).Seconds(), h.labelled(labels{c.method, c.peer, status.Code(s.Error)}))
		}
	}
}

func (h *untraced) labelled(l labels) metric.MeasurementOption {
	if option, ok := h.labels.Load(l); ok {
		return option.(metric.MeasurementOption)
	}
	code := strings.ToUpper(l.code.String())
	if int(l.code) < len(codeNames) {
		code = codeNames[l.code]
	}
	attributes := []attribute.KeyValue{
		attribute.String("rpc.method", l.method), attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.response.status_code", code),
	}
	if l.peer != "" {
		host, port, err := net.SplitHostPort(l.peer)
		attributes = append(attributes, attribute.String("server.address", cmp.Or(host, l.peer)))
		if n, bad := strconv.Atoi(port); err == nil && bad == nil {
			attributes = append(attributes, attribute.Int("server.port", n))
		}
	}
	if h.failed(l.code) {
		attributes = append(attributes, attribute.String("error.type", code))
	}
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	if h.known.Add(1) <= maxLabels {
		h.labels.Store(l, option)
	}
	return option
}

// failed says whether a code is an error for the figures: of a server, only what
// it is to blame for.
func (h *untraced) failed(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	}
	return h.client && code != codes.OK
}

// codeNames are the codes of gRPC as figures name them.
var codeNames = [...]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS",
	codes.Unauthenticated: "UNAUTHENTICATED",
}
