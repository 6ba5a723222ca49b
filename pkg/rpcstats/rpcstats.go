// Package rpcstats records metrics and spans of every call of Berth's gRPC servers and
// clients, and callers cannot create metrics with invented names. The metrics do not
// depend on tracing.
package rpcstats

import (
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Client returns the handler of a client. The handler records metrics of every call
// unless meters is nil, and a span unless traces is nil. It always passes on the trace of
// the caller.
func Client(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewClientHandler(telemetry(meters, traces)...)
}

// Server returns the handler of a server. The handler records metrics of every call
// unless meters is nil, and a span unless traces is nil.
func Server(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewServerHandler(append(telemetry(meters, traces), otelgrpc.WithFilter(known))...)
}

// known reports whether the method of a call exists. Handlers record no metrics and no
// spans of unknown methods: callers can invent any number of names, and the process would
// store each of them.
func known(call *stats.RPCTagInfo) bool {
	service, method, _ := strings.Cut(strings.TrimPrefix(call.FullMethodName, "/"), "/")
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	d, ok := found.(protoreflect.ServiceDescriptor)
	return ok && d.Methods().ByName(protoreflect.Name(method)) != nil
}

// telemetry returns the options of a handler, which never use the global providers of
// OpenTelemetry. A handler passes on the traceparent of a call even if tracing is off, so
// that the caller's trace continues.
func telemetry(meters metric.MeterProvider, traces trace.TracerProvider) []otelgrpc.Option {
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	if traces == nil {
		traces = tracenoop.NewTracerProvider()
	}
	return []otelgrpc.Option{
		otelgrpc.WithMeterProvider(meters), otelgrpc.WithTracerProvider(traces),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	}
}
