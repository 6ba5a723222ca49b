package internal

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

// traceCycle begins the span of a cycle and sets it in the request. The span is exported
// only if granted is called. A reservation may be tried every second for hours, and the
// spans of these cycles would hide all others. The call itself has no span, because such
// a span could not be dropped later.
func (c *Calls) traceCycle(ctx context.Context, cycle model.Cycle,
	request *controlv1.CycleRequest) (traced context.Context, granted func()) {
	traces := make([]model.Trace, len(cycle.Candidates))
	for i, e := range cycle.Candidates {
		traces[i] = e.Trace
	}
	traced, span := tracing.Batch(ctx, c.tracer, "scheduling cycle", traces, trace.WithAttributes(
		attribute.Int64("berth.cycle", cycle.Number), attribute.Int64("berth.term", cycle.Term),
		attribute.Int("berth.candidates", len(cycle.Candidates)),
	))
	request.Trace = string(tracing.Of(traced))
	return traced, func() { span.End() }
}

// traceDispatch begins the span of a dispatch, which is the parent of the span of its
// call.
func (c *Calls) traceDispatch(ctx context.Context, dispatch model.Dispatch) (context.Context, trace.Span) {
	traces := make([]model.Trace, len(dispatch.Tasks))
	for i, task := range dispatch.Tasks {
		traces[i] = task.Trace
	}
	return tracing.Batch(ctx, c.tracer, "dispatch", traces, trace.WithAttributes(
		attribute.Int64("berth.term", dispatch.Term), attribute.Int("berth.tasks", len(dispatch.Tasks)),
	))
}
