package internal

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

// traceCycle begins the span of a cycle if the cycle is traced. Like the registry's span,
// the span is exported only if granted is called.
func traceCycle(ctx context.Context, req *controlv1.CycleRequest) (traced context.Context, granted func()) {
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer(tracing.Scope) // the tracer of the call
	ctx, span := tracing.Batch(ctx, tracer, "run scheduling cycle", []model.Trace{model.Trace(req.GetTrace())},
		trace.WithAttributes(
			attribute.Int64("berth.cycle", req.GetCycle()), attribute.Int64("berth.term", req.GetTerm()),
		))
	return ctx, func() { span.End() }
}
