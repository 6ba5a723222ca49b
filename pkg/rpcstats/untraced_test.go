package rpcstats

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	_ "berth.dev/api/berth/v1" // whose methods are known
)

// figure is what a handler has told of calls: one histogram.
type figure struct {
	name, unit, description string
	bounds                  []float64
	// calls are how many there were and how long they took, by their labels.
	calls map[attribute.Distinct][2]float64
	sets  []attribute.Set
}

// play has a handler see a call of each code, and answers its figure.
func play(t *testing.T, client bool, handler func(*sdk.MeterProvider) stats.Handler) figure {
	t.Helper()
	reader := sdk.NewManualReader()
	h := handler(sdk.NewMeterProvider(sdk.WithReader(reader)))
	begun := time.Unix(100, 0)
	for code := codes.OK; code <= codes.Unauthenticated+1; code++ {
		for range 2 {
			ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: "/berth.v1.Reservations/GetReservation"})
			h.HandleRPC(ctx, &stats.Begin{Client: client, BeginTime: begun})
			h.HandleRPC(ctx, &stats.OutHeader{Client: client, RemoteAddr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7100}})
			h.HandleRPC(ctx, &stats.End{Client: client, BeginTime: begun, EndTime: begun.Add(30 * time.Millisecond), Error: status.Error(code, "said")})
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || len(all.ScopeMetrics[0].Metrics) != 1 {
		t.Fatalf("figures: %+v", all.ScopeMetrics)
	}
	m := all.ScopeMetrics[0].Metrics[0]
	f := figure{name: m.Name, unit: m.Unit, description: m.Description, calls: map[attribute.Distinct][2]float64{}}
	for _, point := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		f.bounds = point.Bounds
		f.calls[point.Attributes.Equivalent()] = [2]float64{float64(point.Count), point.Sum}
		f.sets = append(f.sets, point.Attributes)
	}
	return f
}

// A process that traces nothing has the figures that one has which does.
func TestUntracedCallsHaveTheFiguresOfTracedOnes(t *testing.T) {
	none := tracenoop.NewTracerProvider()
	for _, client := range []bool{false, true} {
		ours := play(t, client, func(m *sdk.MeterProvider) stats.Handler { return newUntraced(client, m) })
		theirs := play(t, client, func(m *sdk.MeterProvider) stats.Handler {
			if client {
				return otelgrpc.NewClientHandler(telemetry(m, none)...)
			}
			return otelgrpc.NewServerHandler(telemetry(m, none)...)
		})
		if ours.name != theirs.name || ours.unit != theirs.unit || ours.description != theirs.description || !slices.Equal(ours.bounds, theirs.bounds) {
			t.Errorf("client %v: %q in %q, %q, %v\nwant %q in %q, %q, %v", client, ours.name, ours.unit, ours.description, ours.bounds,
				theirs.name, theirs.unit, theirs.description, theirs.bounds)
		}
		if len(ours.calls) != len(theirs.calls) {
			t.Errorf("client %v: %d kinds of calls, want %d", client, len(ours.calls), len(theirs.calls))
		}
		for _, set := range theirs.sets {
			if got, want := ours.calls[set.Equivalent()], theirs.calls[set.Equivalent()]; got != want {
				t.Errorf("client %v: %v of %v, want %v", client, got, set.ToSlice(), want)
			}
		}
	}
}

// Callers may make up as many names of methods as they like: none is in the figures.
func TestUnknownMethodsAreNotMeasured(t *testing.T) {
	for what, traces := range map[string]trace.TracerProvider{"untraced": nil, "traced": sdktrace.NewTracerProvider()} {
		reader := sdk.NewManualReader()
		h := Server(sdk.NewMeterProvider(sdk.WithReader(reader)), traces)
		for _, method := range []string{"/berth.v1.Reservations/Made", "/made.Up/GetReservation", "//", "", "berth.v1.Reservation/x", "/berth.v1.Reservations/GetReservation"} {
			ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: method})
			h.HandleRPC(ctx, &stats.Begin{})
			h.HandleRPC(ctx, &stats.End{Error: status.Error(codes.Unimplemented, "")})
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		if points := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints; len(points) != 1 || points[0].Count != 1 {
			t.Errorf("%s: %+v", what, points)
		}
	}
}

// The trace of a caller goes through a process that traces nothing.
func TestUntracedCallsHandOnTheTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	in := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", parent))
	ctx := newUntraced(false, nil).TagRPC(in, &stats.RPCTagInfo{})
	if got := trace.SpanContextFromContext(ctx).TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the trace is %s", got)
	}
	out := newUntraced(true, nil).TagRPC(metadata.AppendToOutgoingContext(ctx, "other", "kept"), &stats.RPCTagInfo{})
	md, _ := metadata.FromOutgoingContext(out)
	if got := md.Get("traceparent"); !slices.Equal(got, []string{parent}) || len(md.Get("other")) != 1 {
		t.Errorf("handed on: %v", md)
	}
	if ctx := newUntraced(true, nil).TagRPC(context.Background(), &stats.RPCTagInfo{}); ctx != context.Background() {
		t.Error("a call without a trace was given headers")
	}
}
