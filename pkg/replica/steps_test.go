package replica

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
)

const traced = model.Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func stepping() (*stepper, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return &stepper{tracer: provider.Tracer("test"), service: "registry", log: slog.New(slog.DiscardHandler)}, spans
}

func event(kind model.EventKind, trace model.Trace, since time.Time) model.JobEvent {
	return model.JobEvent{
		Kind: kind, Time: began.Add(time.Hour), Since: since, Trace: trace,
		Key: model.Key{Job: "j", Stage: "s", Name: "main"}, UID: "1-1", Count: 5000,
	}
}

// If a step began before the leader's term, its span has a link to the term. The span is
// still part of the reservation's trace.
func TestStepsOverATerm(t *testing.T) {
	s, spans := stepping()
	call, cause := s.tracer.Start(context.Background(), "call")
	for _, c := range []struct {
		name  string
		since time.Duration // since the start of the term
		cause context.Context
		links []string
	}{
		{"requested", time.Second, call, []string{"call"}},
		{"requested before the term", -time.Second, call, []string{"call", "term"}},
		{"without a request", time.Second, nil, []string{"term"}},
	} {
		before := len(spans.Ended())
		s.durable(loop.Durable{
			Cause: c.cause, Term: 7, Began: began, Revision: 9,
			Events: []model.JobEvent{event(model.EventReservationLeased, traced, began.Add(c.since))},
		})
		span := spans.Ended()[len(spans.Ended())-1]
		var links []string
		for _, link := range span.Links() {
			kind := link.Attributes[0].Value.AsString()
			links = append(links, kind)
			if kind == "call" && link.SpanContext.SpanID() != cause.SpanContext().SpanID() || kind == "term" &&
				link.SpanContext.SpanID() != s.termSpan.SpanID() {
				t.Errorf("%s: the link %s has another target", c.name, kind)
			}
		}
		if !slices.Equal(links, c.links) || span.Name() != "reservation leased" ||
			span.Parent().TraceID().String() != traced.ID() ||
			!span.StartTime().Equal(began.Add(c.since)) || !span.EndTime().Equal(began.Add(time.Hour)) {
			t.Errorf("%s: %s from %v to %v, links %v", c.name, span.Name(), span.StartTime(), span.EndTime(), links)
		}
		if made := len(spans.Ended()) - before; made > 2 {
			t.Errorf("%s: %d spans", c.name, made)
		}
	}
	terms := 0
	for _, span := range spans.Ended() {
		if span.Name() == "lead registry" {
			terms++
		}
	}
	if terms != 1 {
		t.Errorf("the term has %d spans", terms)
	}
}

// A batch of any size has one span for each event. An event that is not traced or not
// sampled has no span.
func TestOneSpanAnEvent(t *testing.T) {
	s, spans := stepping()
	s.durable(loop.Durable{Cause: context.Background(), Term: 7, Began: began, Revision: 9, Events: []model.JobEvent{
		event(model.EventWorkerStarted, traced, began),
		event(model.EventWorkerStarted, "", began),
		event(model.EventWorkerStarted, traced[:53]+"00", began),
	}})
	if n := len(spans.Ended()); n != 2 { // the span of the step and that of the term
		t.Errorf("%d spans", n)
	}
}

// If tracing is off, the loop reports no durable events, and contexts cost nothing.
func TestOffCostsNothing(t *testing.T) {
	if steps(&Replica{}) != nil {
		t.Fatal("durable events are reported")
	}
	var off *tracing.Tracing
	tracer, ctx := off.Tracer(), context.Background()
	if n := testing.AllocsPerRun(100, func() {
		if tracing.Of(tracing.With(ctx, "")) != "" {
			t.Fail()
		}
		_, span := tracing.Batch(ctx, tracer, "scheduling cycle", []model.Trace{"", ""})
		span.End()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
