package process

import (
	"context"
	"crypto/tls"
	"log/slog"

	"berth.dev/pkg/tracing"
)

// Trace starts tracing if it is configured, and adds the number of spans to the metrics.
// client is the TLS configuration for peers. If tracing is not configured, Trace returns
// nil.
func (c Common) Trace(ctx context.Context, service, replica string, client *tls.Config, log *slog.Logger,
	metrics *Metrics) (*tracing.Tracing, error) {
	t, err := tracing.Open(ctx, tracing.Options{
		Config: c.Tracing, Service: service, Replica: replica, Version: Version, TLS: client, Insecure: c.Insecure, Log: log,
	})
	if err != nil || !t.On() {
		return nil, err
	}
	if metrics != nil {
		metrics.Collect(func(f Scrape) { showTraces(f, t.Counts()) })
	}
	return t, nil
}

func showTraces(f Scrape, c tracing.Counts) {
	f.Counter("berth_trace_spans_sent_total", "Spans that the collector accepted.", c.Sent)
	const dropped, help = "berth_trace_spans_dropped_total",
		"Spans that were dropped because the queue was full or the collector did not accept them."
	f.Counter(dropped, help, c.Full, "reason", "queue_full")
	f.Counter(dropped, help, c.Failed, "reason", "rejected")
}
