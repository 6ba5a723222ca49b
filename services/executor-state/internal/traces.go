package internal

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

// tracePass begins the span of taking a pass, where the pass is traced. It is
// sent only if granted is called, as is that of the registry.
func tracePass(ctx context.Context, req *controlv1.PassRequest) (traced context.Context, granted func()) {
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer(tracing.Scope) // that of the call
	ctx, span := tracing.Batch(ctx, tracer, "take pass", []model.Trace{model.Trace(req.GetTrace())}, trace.WithAttributes(
		attribute.Int64("berth.pass", req.GetPass()), attribute.Int64("berth.term", req.GetTerm()),
	))
	return ctx, func() { span.End() }
}
