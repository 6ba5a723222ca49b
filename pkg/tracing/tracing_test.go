package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"berth.dev/pkg/model"
)

const (
	first  = model.Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	second = model.Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	silent = model.Trace("00-5bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
)

// recorded returns a Tracing that stores its spans in memory.
func recorded(t *testing.T, ratio float64) (*Tracing, func() tracetest.SpanStubs) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	traces, err := open(Options{Config: Config{TraceRatio: ratio}, Service: "test", Log: slog.New(slog.DiscardHandler)},
		exporter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traces.Close)
	return traces, func() tracetest.SpanStubs {
		if err := traces.provider.ForceFlush(context.Background()); err != nil {
			t.Fatal(err)
		}
		return exporter.GetSpans()
	}
}

func TestDisabledTracingDoesNothing(t *testing.T) {
	traces, err := Open(t.Context(), Options{Config: Defaults()})
	if err != nil || traces.On() {
		t.Fatalf("on: %v", err)
	}
	ctx, span := traces.Tracer().Start(t.Context(), "x")
	span.End()
	if span.IsRecording() || Of(ctx) != "" || traces.Counts() != (Counts{}) {
		t.Errorf("a span was made: %v", span.SpanContext())
	}
	// The trace of a caller is still passed on.
	ctx, _ = traces.Tracer().Start(With(t.Context(), first), "x")
	if Of(ctx) != first {
		t.Errorf("the context has the trace %q", Of(ctx))
	}
	traces.Close()
}

func TestContext(t *testing.T) {
	for _, bad := range []model.Trace{"", "x", first[:54], "ff" + first[2:]} {
		if ctx := With(t.Context(), bad); Of(ctx) != "" {
			t.Errorf("%q became %q", bad, Of(ctx))
		}
	}
	for _, good := range []model.Trace{first, silent} {
		if ctx := With(t.Context(), good); Of(ctx) != good || Span(good).TraceID().String() != good.ID() {
			t.Errorf("%q became %q, its id %q", good, Of(ctx), good.ID())
		}
	}
}

// Calls without a trace are sampled at the ratio, and background calls are never sampled. A
// span that continues a trace, or has a link to one, follows the decision of that trace.
func TestSampling(t *testing.T) {
	ofFirst := With(context.Background(), first)
	link := trace.WithLinks(trace.Link{SpanContext: Span(first)})
	server := trace.WithSpanKind(trace.SpanKindServer)
	for _, c := range []struct {
		ratio   float64
		ctx     context.Context
		name    string
		options []trace.SpanStartOption
		want    bool
	}{
		{1, context.Background(), "berth.v1.Reservations/UpsertReservation", []trace.SpanStartOption{server}, true},
		{0, context.Background(), "berth.v1.Reservations/UpsertReservation", []trace.SpanStartOption{server}, false},
		{1, context.Background(), "berth.control.v1.Heartbeats/Beat", []trace.SpanStartOption{server}, false},
		{1, context.Background(), "grpc.health.v1.Health/Watch", []trace.SpanStartOption{server}, false},
		{1, context.Background(), "berth.v1.Events/WatchEvents", []trace.SpanStartOption{server}, false},
		{0, ofFirst, "berth.control.v1.Executor/SubmitTask", []trace.SpanStartOption{server}, true},
		{1, With(context.Background(), silent), "reservation queued", nil, false},
		{0, context.Background(), "lead registry", []trace.SpanStartOption{link}, true},
		{0, context.Background(), "lead registry", nil, false},
	} {
		traces, _ := recorded(t, c.ratio)
		_, span := traces.Tracer().Start(c.ctx, c.name, c.options...)
		if got := span.SpanContext().IsSampled(); got != c.want {
			t.Errorf("%s at %v: sampled is %v", c.name, c.ratio, got)
		}
	}
}

func TestBatch(t *testing.T) {
	traces, sent := recorded(t, 0)
	for _, c := range []struct {
		name string
		of   []model.Trace
		id   string // the ID of its trace, or empty if the span starts a trace
		link int
		none bool
	}{
		{name: "nothing traced", of: []model.Trace{"", silent}, none: true},
		{name: "one reservation", of: []model.Trace{first, "", first}, id: first.ID()},
		{name: "two", of: []model.Trace{first, second, first}, link: 2},
	} {
		ctx, span := Batch(t.Context(), traces.Tracer(), c.name, c.of)
		if c.none {
			if ctx != t.Context() || span.IsRecording() {
				t.Errorf("%s: a span was made", c.name)
			}
			span.End()
			continue
		}
		span.End()
		got := sent()[len(sent())-1]
		id := got.SpanContext.TraceID().String()
		if got.Name != c.name || len(got.Links) != c.link || c.id != "" && id != c.id || c.id == "" &&
			(id == first.ID() || id == second.ID()) {
			t.Errorf("%s: trace %s, links %v", c.name, id, got.Links)
		}
	}
	// A span that is never ended is never sent.
	before := len(sent())
	Batch(t.Context(), traces.Tracer(), "refused", []model.Trace{first})
	if after := len(sent()); after != before {
		t.Errorf("%d spans were sent", after-before)
	}
}

// blocked is an exporter that accepts no spans until the test releases it.
type blocked struct {
	release chan struct{}
	err     error
}

func (b *blocked) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	<-b.release
	return b.err
}
func (b *blocked) Shutdown(context.Context) error { return nil }

// TestCallersDoNotWaitForTheCollector checks what happens if the collector hangs. The queue
// keeps as many spans as it can hold. All other spans are dropped and counted. The end of a
// span never waits.
func TestCallersDoNotWaitForTheCollector(t *testing.T) {
	const more = 100
	exporter := &blocked{release: make(chan struct{})}
	traces, err := open(Options{Config: Config{TraceRatio: 1}, Log: slog.New(slog.DiscardHandler)}, exporter)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range (queueSize + more) / 4 {
				_, span := traces.Tracer().Start(t.Context(), "x")
				span.End()
			}
		})
	}
	all.Wait()
	if got := traces.Counts(); got != (Counts{Full: more}) {
		t.Errorf("while the collector hangs: %+v", got)
	}
	close(exporter.release)
	if err := traces.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := traces.Counts(); got != (Counts{Sent: queueSize, Full: more}) {
		t.Errorf("in the end: %+v", got)
	}
	traces.Close()
}

// If the collector fails, the failure is logged once, and the lost spans are counted.
func TestFailuresAreCounted(t *testing.T) {
	var text bytes.Buffer
	exporter := &blocked{release: make(chan struct{}), err: errors.New("no")}
	close(exporter.release)
	traces, err := open(Options{Config: Config{TraceRatio: 1}, Log: slog.New(slog.NewTextHandler(&text, nil))}, exporter)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, span := traces.Tracer().Start(t.Context(), "x")
		span.End()
		if err := traces.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	traces.Close()
	if got := traces.Counts(); got != (Counts{Failed: 3}) {
		t.Errorf("%+v", got)
	}
	if n := strings.Count(text.String(), "does not accept traces"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, text.String())
	}
}

func TestLogsNameTheTrace(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(Handler(slog.NewTextHandler(&text, nil))).With("service", "x")
	log.InfoContext(With(t.Context(), first), "traced")
	log.Info("plain")
	lines := strings.Split(text.String(), "\n")
	if !strings.Contains(lines[0], "trace_id="+first.ID()) || strings.Contains(lines[1], "trace_id") {
		t.Errorf("%s", text.String())
	}
}
