package tracing

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/credentials"

	"berth.dev/api/fault"
)

// Scope is the instrumentation scope of Berth's own spans. The spans of gRPC calls have
// the scope of otelgrpc.
const Scope = "berth.dev"

// flushTimeout is the maximum time that Close waits for the collector.
const flushTimeout = 2 * time.Second

// Options configures the tracing of a process.
type Options struct {
	Config
	// Service, Replica and Version identify the process.
	Service, Replica, Version string
	// TLS is the TLS configuration for the collector. The default is the configuration of
	// the environment variables and of the system.
	TLS *tls.Config
	// Insecure allows a collector beyond loopback without TLS.
	Insecure bool
	Log      *slog.Logger
}

// Tracing sends the spans of a process. If tracing is off, it is nil. All methods may be
// called on nil.
type Tracing struct {
	provider *sdk.TracerProvider
	queue    *queue
	log      *slog.Logger
}

// Open starts tracing. It returns nil if the options have no endpoint. It does not wait for the
// collector. The standard variables OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION and _CERTIFICATE
// and OTEL_RESOURCE_ATTRIBUTES apply. Errors are Invalid and name the option.
func Open(ctx context.Context, o Options) (*Tracing, error) {
	if err := o.Check(o.Insecure); err != nil {
		return nil, err
	}
	if o.OTLPEndpoint == "" {
		return nil, nil
	}
	to, err := o.collector(o.Insecure)
	if err != nil {
		return nil, err
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(to.address)}
	switch {
	case to.plain:
		options = append(options, otlptracegrpc.WithInsecure())
	case o.TLS != nil:
		options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(o.TLS)))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, badEndpoint("cannot create the exporter for %q: %v", o.OTLPEndpoint, err)
	}
	return open(o, exporter)
}

// open starts tracing with the given exporter.
func open(o Options, exporter sdk.SpanExporter) (*Tracing, error) {
	who, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", "berth-"+o.Service),
		attribute.String("service.instance.id", o.Replica),
		attribute.String("service.version", o.Version),
	))
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "OTEL_RESOURCE_ATTRIBUTES is invalid").Because(err)
	}
	q := newQueue(exporter, o.Log)
	return &Tracing{queue: q, log: o.Log, provider: sdk.NewTracerProvider(
		sdk.WithResource(who),
		sdk.WithSampler(sampler(o.TraceRatio)),
		sdk.WithSpanProcessor(q),
	)}, nil
}

// On reports whether tracing is on.
func (t *Tracing) On() bool { return t != nil }

// Provider returns the tracer provider. If tracing is off, its spans do nothing.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Tracer returns the tracer of Berth's own spans.
func (t *Tracing) Tracer() trace.Tracer { return t.Provider().Tracer(Scope) }

// Counts returns the numbers of spans so far.
func (t *Tracing) Counts() Counts {
	if t == nil {
		return Counts{}
	}
	return t.queue.counts()
}

// Close sends the queued spans and stops tracing. It takes at most two seconds.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans could not be sent", "error", err)
	}
}
