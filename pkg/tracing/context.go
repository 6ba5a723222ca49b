package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"berth.dev/pkg/model"
)

// header is the one that W3C gave the trace of a request.
const header = "traceparent"

// Of is the trace that a context belongs to; empty for none.
func Of(ctx context.Context) model.Trace {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return model.Trace(carrier[header])
}

// With answers a context whose spans and calls belong to the trace. One that
// does not parse, or none, leaves the context as it is.
func With(ctx context.Context, t model.Trace) context.Context {
	if t == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: string(t)})
}

// Span is what a trace names as the origin of all else in it.
func Span(t model.Trace) trace.SpanContext {
	return trace.SpanContextFromContext(With(context.Background(), t))
}

// maxLinks bounds the reservations that one span is linked with.
const maxLinks = 64

// Batch starts a span of work that is done for several reservations at once: in
// their trace, where they have one in common, and otherwise in one of its own,
// linked with theirs. Where none of them is traced it starts nothing. A span
// that is never ended is never sent.
func Batch(ctx context.Context, tracer trace.Tracer, name string, reservations []model.Trace, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	var origins []trace.SpanContext
	seen := map[model.Trace]bool{}
	for _, t := range reservations {
		if t == "" || seen[t] {
			continue
		}
		seen[t] = true
		if origin := Span(t); origin.IsSampled() && len(origins) < maxLinks {
			origins = append(origins, origin)
		}
	}
	switch len(origins) {
	case 0:
		return ctx, trace.SpanFromContext(context.Background())
	case 1:
		return tracer.Start(trace.ContextWithRemoteSpanContext(ctx, origins[0]), name, o...)
	}
	links := make([]trace.Link, len(origins))
	for i, origin := range origins {
		links[i] = trace.Link{SpanContext: origin}
	}
	return tracer.Start(ctx, name, append(o, trace.WithNewRoot(), trace.WithLinks(links...))...)
}
