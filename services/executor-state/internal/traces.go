package internal

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

// traceCycle begins the span of taking a cycle, where the cycle is traced. It is
// sent only if granted is called, as is that of the registry.
func traceCycle(ctx context.Context, req *controlv1.CycleRequest) (traced context.Context, granted func()) {
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer(tracing.Scope) // that of the call
	ctx, span := tracing.Batch(ctx, tracer, "run scheduling cycle", []model.Trace{model.Trace(req.GetTrace())}, trace.WithAttributes(
		attribute.Int64("berth.cycle", req.GetCycle()), attribute.Int64("berth.term", req.GetTerm()),
	))
	return ctx, func() { span.End() }
}
