package replica

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

// stepper creates a span for each step of a reservation. The span begins at the end of
// the previous step and ends at the job event of the step. stepper creates spans only
// from durable events. So a step that began under one leader and ended under another is
// one span, which the second leader creates.
type stepper struct {
	tracer  trace.Tracer
	service string
	log     *slog.Logger

	// termSpan is the span of term.
	term     int64
	termSpan trace.SpanContext
}

// steps returns the function that the loop calls with durable events. It returns nil if
// tracing is off, so that the loop does no work for tracing.
func steps(r *Replica) func(loop.Durable) {
	if !r.Tracing.On() {
		return nil
	}
	return (&stepper{tracer: r.Tracing.Tracer(), service: r.Service, log: r.Log}).durable
}

func (s *stepper) durable(d loop.Durable) {
	for i := range d.Events {
		if origin := tracing.Span(d.Events[i].Trace); origin.IsSampled() {
			s.step(d, &d.Events[i], origin)
		}
	}
}

func (s *stepper) step(d loop.Durable, e *model.JobEvent, origin trace.SpanContext) {
	began := e.Since
	if began.IsZero() || began.After(e.Time) {
		began = e.Time
	}
	kind := berthv1.Event_Kind(e.Kind).String()
	ctx, span := s.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), origin), name(kind),
		trace.WithTimestamp(began), trace.WithLinks(s.links(d, began, origin)...), trace.WithAttributes(
			attribute.String("berth.job", e.Key.Job),
			attribute.String("berth.stage", e.Key.Stage),
			attribute.String("berth.reservation", e.Key.Name),
			attribute.String("berth.uid", e.UID),
			attribute.Int64("berth.epoch", epoch(d, e)),
			attribute.Int64("berth.term", d.Term),
			attribute.String("berth.event", kind),
			attribute.Int64("berth.workers", int64(e.Count)),
		))
	if step := stepNumbers[e.Kind]; step != "" {
		span.SetAttributes(attribute.String("berth.step", step))
	}
	if e.Reason != "" {
		span.SetAttributes(attribute.String("berth.reason", string(e.Reason)))
	}
	if slices.Contains(failures, e.Kind) {
		span.SetStatus(codes.Error, e.Message)
	}
	span.End(trace.WithTimestamp(e.Time))
	s.log.DebugContext(ctx, "durable", "event", kind, "reservation", e.Key, "uid", e.UID, "workers", e.Count)
}

// links returns links to the causes of a step. If a call requested the step, one link is
// to the call. If no call did, or if the leader's term began during the step, one link is
// to the span of the term.
func (s *stepper) links(d loop.Durable, began time.Time, origin trace.SpanContext) []trace.Link {
	var links []trace.Link
	if d.Cause != nil {
		if call := trace.SpanContextFromContext(d.Cause); call.IsSampled() {
			links = append(links, link(call, "call"))
		}
	}
	if len(links) == 0 || began.Before(d.Began) {
		links = append(links, link(s.spanOfTerm(d, origin), "term"))
	}
	return links
}

func link(to trace.SpanContext, what string) trace.Link {
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String("berth.link", what)}}
}

// spanOfTerm returns the span of the term, which is the only span of a separate trace.
// The first traced step of the term creates this span, and the span has a link to the
// trace of that step.
func (s *stepper) spanOfTerm(d loop.Durable, origin trace.SpanContext) trace.SpanContext {
	if s.term != d.Term {
		_, span := s.tracer.Start(context.Background(), "lead "+s.service, trace.WithTimestamp(d.Began), trace.WithNewRoot(),
			trace.WithLinks(trace.Link{SpanContext: origin}), trace.WithAttributes(attribute.Int64("berth.term", d.Term)))
		span.End()
		s.term, s.termSpan = d.Term, span.SpanContext()
	}
	return s.termSpan
}

// epoch returns the reservation's epoch. If this effect creates the reservation, the
// epoch is the revision of the effect.
func epoch(d loop.Durable, e *model.JobEvent) int64 {
	if e.Epoch == 0 {
		return d.Revision
	}
	return e.Epoch
}

// name returns an event kind in lower case words: "reservation leased".
func name(kind string) string { return strings.ToLower(strings.ReplaceAll(kind, "_", " ")) }

// stepNumbers maps each event to the number of its step in the message flow of a batch.
var stepNumbers = map[model.EventKind]string{
	model.EventReservationQueued:   "0",
	model.EventReservationLeased:   "1",
	model.EventReservationHeld:     "1",
	model.EventWorkerAssigned:      "2",
	model.EventReservationAssigned: "2",
	model.EventWorkerStarted:       "3",
	model.EventWorkerRunning:       "3",
	model.EventWorkerRequeued:      "3'",
	model.EventReservationRequeued: "3'",
}

// failures has the event kinds that report a failed step.
var failures = []model.EventKind{
	model.EventReservationFailed, model.EventReservationExpired, model.EventWorkerFailed, model.EventWorkerLost,
	model.EventWorkerRequeued,
}
