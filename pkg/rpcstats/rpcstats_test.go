package rpcstats

import (
	"slices"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	_ "berth.dev/api/berth/v1" // registers known methods
)

// Callers may invent any number of method names. No invented name appears in the metrics.
func TestUnknownMethodsAreNotMeasured(t *testing.T) {
	for what, traces := range map[string]trace.TracerProvider{"untraced": nil, "traced": sdktrace.NewTracerProvider()} {
		reader := sdk.NewManualReader()
		h := Server(sdk.NewMeterProvider(sdk.WithReader(reader)), traces)
		for _, method := range []string{"/berth.v1.Reservations/Made", "/made.Up/GetReservation", "//", "",
			"berth.v1.Reservation/x", "/berth.v1.Reservations/GetReservation"} {
			ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: method})
			h.HandleRPC(ctx, &stats.Begin{})
			h.HandleRPC(ctx, &stats.End{Error: status.Error(codes.Unimplemented, "")})
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		if points := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints; len(points) != 1 ||
			points[0].Count != 1 {
			t.Errorf("%s: %+v", what, points)
		}
	}
}

// A process that traces nothing still passes on the trace of its caller.
func TestUntracedCallsPassTheTraceOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	in := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", parent))
	method := &stats.RPCTagInfo{FullMethodName: "/berth.v1.Reservations/GetReservation"}
	ctx := Server(nil, nil).TagRPC(in, method)
	out := Client(nil, nil).TagRPC(metadata.AppendToOutgoingContext(ctx, "other", "kept"), method)
	md, _ := metadata.FromOutgoingContext(out)
	if got := md.Get("traceparent"); !slices.Equal(got, []string{parent}) || len(md.Get("other")) != 1 {
		t.Errorf("passed on: %v", md)
	}
}
