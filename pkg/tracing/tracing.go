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

// Scope is the name of the instrumentation that Berth's own spans come from;
// those of calls are otelgrpc's.
const Scope = "berth.dev"

// flushTimeout bounds how long the end of a process waits for a collector.
const flushTimeout = 2 * time.Second

// Options are what a process traces as.
type Options struct {
	Config
	// Service, Replica and Version say who traces.
	Service, Replica, Version string
	// TLS to call the collector with, where there is TLS; that of the environment
	// and of the system unless given.
	TLS *tls.Config
	// Insecure allows a collector beyond loopback without TLS.
	Insecure bool
	Log      *slog.Logger
}

// Tracing is where a process's spans go; nil where nothing is traced. Its
// methods may be called on nil.
type Tracing struct {
	provider *sdk.TracerProvider
	queue    *queue
	log      *slog.Logger
}

// Open makes what the options say: nil unless they name an endpoint. It does
// not wait for the collector. The standard variables OTEL_EXPORTER_OTLP_HEADERS,
// _TIMEOUT, _COMPRESSION and _CERTIFICATE and OTEL_RESOURCE_ATTRIBUTES hold. Errors
// are Invalid and name the option.
func Open(ctx context.Context, o Options) (*Tracing, error) {
	if !(o.TraceRatio >= 0 && o.TraceRatio <= 1) { // nor is NaN
		return nil, fault.BadField(fault.ReasonInvalid, "--trace-ratio", "%v is not between 0 and 1", o.TraceRatio)
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
		return nil, badEndpoint("spans cannot be sent to %q: %v", o.OTLPEndpoint, err)
	}
	return open(o, exporter)
}

// open traces to any exporter.
func open(o Options, exporter sdk.SpanExporter) (*Tracing, error) {
	who, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithAttributes(
		attribute.String("service.name", "berth-"+o.Service),
		attribute.String("service.instance.id", o.Replica),
		attribute.String("service.version", o.Version),
	))
	if err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "OTEL_RESOURCE_ATTRIBUTES cannot be read").Because(err)
	}
	q := newQueue(exporter, o.Log)
	return &Tracing{queue: q, log: o.Log, provider: sdk.NewTracerProvider(
		sdk.WithResource(who),
		sdk.WithSampler(sampler(o.TraceRatio)),
		sdk.WithSpanProcessor(q),
	)}, nil
}

// On says whether anything is traced.
func (t *Tracing) On() bool { return t != nil }

// Provider makes tracers; its spans cost nothing where nothing is traced.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return noop.NewTracerProvider()
	}
	return t.provider
}

// Tracer is that of Berth's own spans.
func (t *Tracing) Tracer() trace.Tracer { return t.Provider().Tracer(Scope) }

// Counts says what became of spans so far.
func (t *Tracing) Counts() Counts {
	if t == nil {
		return Counts{}
	}
	return t.queue.counts()
}

// Close sends what waits and ends, at the latest after two seconds.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans were not sent", "error", err)
	}
}
