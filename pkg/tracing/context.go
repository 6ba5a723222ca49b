package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"berth.dev/pkg/model"
)

// header is the W3C header for the trace of a request.
const header = "traceparent"

// Of returns the trace of a context. It returns "" if the context has no trace.
func Of(ctx context.Context) model.Trace {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return model.Trace(carrier[header])
}

// With returns a context whose spans and calls belong to the trace. An empty or invalid trace leaves the
// context unchanged.
func With(ctx context.Context, t model.Trace) context.Context {
	if t == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: string(t)})
}

// Span returns the context of the span whose ID is in the trace.
func Span(t model.Trace) trace.SpanContext {
	return trace.SpanContextFromContext(With(context.Background(), t))
}

// maxLinks is the maximum number of links of one span.
const maxLinks = 64

// Batch starts a span for work on several reservations. If all traced reservations have
// the same trace, the span is in that trace. Otherwise the span is in a new trace and has
// links to the traces of the reservations. If none of the reservations is traced, Batch
// starts no span. A span that is never ended is never sent.
func Batch(ctx context.Context, tracer trace.Tracer, name string, reservations []model.Trace,
	o ...trace.SpanStartOption) (context.Context, trace.Span) {
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
