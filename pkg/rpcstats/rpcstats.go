// Package rpcstats measures and traces the calls of Berth's gRPC servers and clients. The metrics do not
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

// Client returns the handler of a client. It records the metrics of every call unless meters is nil, and a
// span unless traces is nil. It passes on the trace of the caller.
func Client(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewClientHandler(telemetry(meters, traces)...)
}

// Server returns the handler of a server. It records the metrics of every call unless meters is nil, and a
// span unless traces is nil.
func Server(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewServerHandler(append(telemetry(meters, traces), otelgrpc.WithFilter(known))...)
}

// known reports whether a service has the method of a call. Unknown methods are in no metric and no trace:
// callers can invent any number of names, and each of them would be kept.
func known(call *stats.RPCTagInfo) bool {
	service, method, _ := strings.Cut(strings.TrimPrefix(call.FullMethodName, "/"), "/")
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	d, ok := found.(protoreflect.ServiceDescriptor)
	return ok && d.Methods().ByName(protoreflect.Name(method)) != nil
}

// telemetry returns the options of a handler. They never use OpenTelemetry's global providers. The
// traceparent of a call is passed on even if tracing is off, so that the caller's trace continues.
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
