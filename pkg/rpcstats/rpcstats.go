// Package rpcstats is what Berth's gRPC servers and clients measure and trace: the
// same metrics whether or not anything is traced.
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

// Client returns the handler of a client. It takes the metrics of every call, unless
// meters is nil, and a span, unless nothing is traced, and passes on the trace of the
// caller.
func Client(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewClientHandler(telemetry(meters, traces)...)
}

// Server returns the handler of a server. It takes the metrics of every call, unless
// meters is nil, and a span, unless nothing is traced.
func Server(meters metric.MeterProvider, traces trace.TracerProvider) stats.Handler {
	return otelgrpc.NewServerHandler(append(telemetry(meters, traces), otelgrpc.WithFilter(known))...)
}

// known reports whether some service has the method of a call. Any other is in no
// metric and no trace, for callers may make up as many names as they like, and each
// would be kept.
func known(call *stats.RPCTagInfo) bool {
	service, method, _ := strings.Cut(strings.TrimPrefix(call.FullMethodName, "/"), "/")
	found, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	d, ok := found.(protoreflect.ServiceDescriptor)
	return ok && d.Methods().ByName(protoreflect.Name(method)) != nil
}

// telemetry are the options of the handlers that see every call: never what the
// program around has made global. The traceparent of a call is handed on even
// where nothing is traced, so that a trace of the caller's goes through.
func telemetry(meters metric.MeterProvider, traces trace.TracerProvider) []otelgrpc.Option {
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	if traces == nil {
		traces = tracenoop.NewTracerProvider()
	}
	return []otelgrpc.Option{
		otelgrpc.WithMeterProvider(meters), otelgrpc.WithTracerProvider(traces), otelgrpc.WithPropagators(propagation.TraceContext{}),
	}
}
