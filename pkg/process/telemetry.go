package process

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"berth.dev/api/fault"
	"berth.dev/pkg/tracing"
)

// NewLogger writes records at or above a level, as JSON or text, with the trace
// id of what they are about.
func NewLogger(out io.Writer, format, level string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, badConfig(nil, "--log-level %q is not debug, info, warn or error", level)
	}
	options.Level = least
	switch format {
	case "json":
		return slog.New(tracing.Handler(slog.NewJSONHandler(out, &options))), nil
	case "text":
		return slog.New(tracing.Handler(slog.NewTextHandler(out, &options))), nil
	default:
		return nil, badConfig(nil, "--log-format %q is not json or text", format)
	}
}

// Metrics is a process's own registry of figures. It is never the default one
// of Prometheus, which embedded etcd registers in too: several services in one
// process stay apart.
type Metrics struct {
	// Provider makes the OpenTelemetry meters.
	Provider *metric.MeterProvider
	registry *prometheus.Registry
}

// NewMetrics makes a registry that already holds the figures of the process
// and of Go.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make the metrics exporter").Because(err)
	}
	return &Metrics{metric.NewMeterProvider(metric.WithReader(exporter)), registry}, nil
}

// Handler serves the figures in Prometheus' text form.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
