package replica

import (
	"context"
	"log/slog"
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

// stepper makes a span of each step that a reservation has taken: from when the
// step before it ended until its job event. The spans are made of what is
// durable, so that a step which was begun under one leader and ended under
// another is one span, of the leader that ended it.
type stepper struct {
	tracer  trace.Tracer
	service string
	log     *slog.Logger

	// term is the one that reign is the span of.
	term  int64
	reign trace.SpanContext
}

// steps answers what the loop tells of durable events; nil where nothing is
// traced, so that it costs nothing then.
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
	if step := stepOf(e.Kind); step != "" {
		span.SetAttributes(attribute.String("berth.step", step))
	}
	if e.Reason != "" {
		span.SetAttributes(attribute.String("berth.reason", string(e.Reason)))
	}
	if failed(e.Kind) {
		span.SetStatus(codes.Error, e.Message)
	}
	span.End(trace.WithTimestamp(e.Time))
	s.log.DebugContext(ctx, "durable", "event", kind, "reservation", e.Key, "uid", e.UID, "workers", e.Count)
}

// links tell why the step was taken: the call that asked for it, where it was
// one; and the leader's term, where it was not, or where the term is younger
// than the step, so that it was taken over.
func (s *stepper) links(d loop.Durable, began time.Time, origin trace.SpanContext) []trace.Link {
	var links []trace.Link
	if d.Cause != nil {
		if call := trace.SpanContextFromContext(d.Cause); call.IsSampled() {
			links = append(links, link(call, "call"))
		}
	}
	if len(links) == 0 || began.Before(d.Began) {
		links = append(links, link(s.leading(d, origin), "term"))
	}
	return links
}

func link(to trace.SpanContext, what string) trace.Link {
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String("berth.link", what)}}
}

// leading is the span of the term: a trace of its own, made when the first
// traced step is taken in it, and linked with that.
func (s *stepper) leading(d loop.Durable, origin trace.SpanContext) trace.SpanContext {
	if s.term != d.Term {
		_, span := s.tracer.Start(context.Background(), "lead "+s.service, trace.WithTimestamp(d.Began), trace.WithNewRoot(),
			trace.WithLinks(trace.Link{SpanContext: origin}), trace.WithAttributes(attribute.Int64("berth.term", d.Term)))
		span.End()
		s.term, s.reign = d.Term, span.SpanContext()
	}
	return s.reign
}

// epoch is the reservation's: one that this very effect has made has its
// revision.
func epoch(d loop.Durable, e *model.JobEvent) int64 {
	if e.Epoch == 0 {
		return d.Revision
	}
	return e.Epoch
}

// name is a kind in small words: "reservation leased".
func name(kind string) string { return strings.ToLower(strings.ReplaceAll(kind, "_", " ")) }

// stepOf numbers the steps of a batch as its message flow does; empty for what
// lies outside of that.
func stepOf(kind model.EventKind) string {
	switch kind {
	case model.EventReservationQueued:
		return "0"
	case model.EventReservationLeased:
		return "1"
	case model.EventWorkerAssigned, model.EventReservationAssigned:
		return "2"
	case model.EventWorkerStarted, model.EventWorkerRunning:
		return "3"
	case model.EventWorkerRequeued, model.EventReservationRequeued:
		return "3'"
	}
	return ""
}

func failed(kind model.EventKind) bool {
	switch kind {
	case model.EventReservationFailed, model.EventReservationExpired, model.EventWorkerFailed, model.EventWorkerLost, model.EventWorkerRequeued:
		return true
	}
	return false
}
