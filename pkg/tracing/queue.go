package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The limits of the queue, in spans, and the interval of sending.
const (
	queueSize  = 4096
	batchSize  = 512
	batchEvery = time.Second
)

// Counts has the numbers of spans by outcome.
type Counts struct {
	// Sent is the number of spans that the collector accepted.
	Sent uint64
	// Full is the number of spans that were dropped because the queue was full. Failed is
	// the number of spans that were dropped because the collector did not accept them.
	Full, Failed uint64
}

// queue is a batcher that counts the spans that it drops. It never passes more spans to
// the SDK's batcher than that batcher can hold, because the SDK's batcher drops spans
// without counting them.
type queue struct {
	sdk.SpanProcessor // the batcher
	exporter          sdk.SpanExporter
	log               *slog.Logger

	waiting            atomic.Int64
	sent, full, failed atomic.Uint64
	failing            atomic.Bool
}

func newQueue(exporter sdk.SpanExporter, log *slog.Logger) *queue {
	q := &queue{exporter: exporter, log: log}
	q.SpanProcessor = sdk.NewBatchSpanProcessor(sender{q},
		sdk.WithMaxQueueSize(queueSize), sdk.WithMaxExportBatchSize(batchSize), sdk.WithBatchTimeout(batchEvery))
	return q
}

// OnEnd implements sdk.SpanProcessor. It does not block.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > queueSize {
		q.waiting.Add(-1)
		q.full.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(span)
}

func (q *queue) counts() Counts {
	return Counts{Sent: q.sent.Load(), Full: q.full.Load(), Failed: q.failed.Load()}
}

// sender is the exporter of the batcher.
type sender struct{ q *queue }

// ExportSpans implements sdk.SpanExporter. It logs the first failure and the recovery, not every batch.
func (s sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	q, n := s.q, uint64(len(spans))
	err := q.exporter.ExportSpans(ctx, spans)
	q.waiting.Add(-int64(n))
	if err != nil {
		q.failed.Add(n)
	} else {
		q.sent.Add(n)
	}
	switch was := q.failing.Swap(err != nil); {
	case err != nil && !was:
		q.log.Warn("the collector does not accept traces", "error", err)
	case err == nil && was:
		q.log.Info("the collector accepts traces again")
	}
	return nil
}

// Shutdown implements sdk.SpanExporter.
func (s sender) Shutdown(ctx context.Context) error { return s.q.exporter.Shutdown(ctx) }
