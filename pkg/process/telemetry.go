package process

import (
	"io"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"berth.dev/api/fault"
	"berth.dev/pkg/tracing"
)

// NewLogger returns a logger that writes records at or above a level, as JSON or text.
// Each record contains the trace ID of its context.
func NewLogger(out io.Writer, format, level string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var minimum slog.Level
	if err := minimum.UnmarshalText([]byte(level)); err != nil {
		return nil, badConfig(nil, "--log-level: must be debug, info, warn or error, got %q", level)
	}
	options.Level = minimum
	switch format {
	case "json":
		return slog.New(tracing.Handler(slog.NewJSONHandler(out, &options))), nil
	case "text":
		return slog.New(tracing.Handler(slog.NewTextHandler(out, &options))), nil
	default:
		return nil, badConfig(nil, "--log-format: must be json or text, got %q", format)
	}
}

// Metrics is the metrics registry of a process. It is never the default registry of
// Prometheus, which embedded etcd uses. So the metrics of several services in one process
// are separate.
type Metrics struct {
	// Provider creates the OpenTelemetry meters.
	Provider *metric.MeterProvider
	registry *prometheus.Registry
}

// NewMetrics returns a registry with the metrics of the process and of Go.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make the metrics exporter").Because(err)
	}
	m := &Metrics{metric.NewMeterProvider(metric.WithReader(exporter)), registry}
	m.Collect(func(f Scrape) {
		f.Gauge("berth_build_info", "1, with the version of Berth and of Go.", 1, "version", Version, "go", runtime.Version())
	})
	return m, nil
}

// Handler returns a handler that serves the metrics in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
