package process

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
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
		return nil, fault.BadField(fault.ReasonInvalid, "--log-level", "must be debug, info, warn or error, got %q", level)
	}
	options.Level = minimum
	switch format {
	case "json":
		return slog.New(tracing.Handler(slog.NewJSONHandler(out, &options))), nil
	case "text":
		return slog.New(tracing.Handler(slog.NewTextHandler(out, &options))), nil
	default:
		return nil, fault.BadField(fault.ReasonInvalid, "--log-format", "must be json or text, got %q", format)
	}
}

// CheckLog returns an error if NewLogger does not accept the format or the level. The error names
// the option.
func CheckLog(format, level string) error {
	_, formatErr := NewLogger(io.Discard, format, "info")
	_, levelErr := NewLogger(io.Discard, "text", level)
	return errors.Join(formatErr, levelErr)
}

// Metrics is the metrics registry of a process. It is never the default registry of
// Prometheus, which embedded etcd uses. So the metrics of several services in one process
// are separate, unless each service has a Part of one registry.
type Metrics struct {
	// Provider creates the OpenTelemetry meters.
	Provider *metric.MeterProvider
	// cluster returns the value of the label "cluster", which every series has. It is empty as
	// long as the process does not know its cluster.
	cluster  func() string
	registry *prometheus.Registry
	// registerer registers with registry, and adds the label of a part.
	registerer prometheus.Registerer
}

// NewMetrics returns a registry with the metrics of the process, of Go and of the build.
// cluster returns the name of the cluster of the process.
func NewMetrics(cluster func() string) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m, err := newMetrics(cluster, registry, registry)
	if err != nil {
		return nil, err
	}
	m.Collect(showBuild)
	return m, nil
}

// Part returns the metrics of one of several services in the process. They have the label
// "part", so that the metrics of two parts differ. The handlers of all parts serve the
// metrics of the whole process.
func (m *Metrics) Part(name string) (*Metrics, error) {
	return newMetrics(m.cluster, m.registry, prometheus.WrapRegistererWith(prometheus.Labels{"part": name}, m.registry))
}

func newMetrics(cluster func() string, registry *prometheus.Registry,
	registerer prometheus.Registerer) (*Metrics, error) {
	exporter, err := otelprom.New(otelprom.WithRegisterer(registerer), otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make the metrics exporter").Because(err)
	}
	return &Metrics{metric.NewMeterProvider(metric.WithReader(exporter)), cluster, registry, registerer}, nil
}

// Handler returns a handler that serves the metrics in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(m.gather), promhttp.HandlerOpts{Registry: m.registry})
}

// gather returns all metrics with the label "cluster". A registerer cannot add the label,
// because an agent learns the name of its cluster when it registers.
func (m *Metrics) gather() ([]*dto.MetricFamily, error) {
	families, err := m.registry.Gather()
	name := m.cluster()
	if name == "" {
		return families, err
	}
	label := &dto.LabelPair{Name: new("cluster"), Value: &name}
	for _, family := range families {
		for _, one := range family.Metric {
			// The scrapes of a metric share its labels.
			i, _ := slices.BinarySearchFunc(one.Label, label.GetName(), func(l *dto.LabelPair, name string) int {
				return strings.Compare(l.GetName(), name)
			})
			one.Label = slices.Concat(one.Label[:i], []*dto.LabelPair{label}, one.Label[i:])
		}
	}
	return families, err
}
