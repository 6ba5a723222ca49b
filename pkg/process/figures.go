package process

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth.dev/pkg/model"
)

// Figures takes figures that are read when somebody asks for them, so that one
// that is no longer given is gone at once. Names begin with "berth_"; labels
// are pairs of name and value, and never hold a job or a reservation.
type Figures struct {
	emit chan<- prometheus.Metric
}

// Gauge gives a figure that goes up and down.
func (f Figures) Gauge(name, help string, value float64, labels ...string) {
	f.constant(prometheus.GaugeValue, name, help, value, labels)
}

// Counter gives a figure that only rises while one leader leads.
func (f Figures) Counter(name, help string, value uint64, labels ...string) {
	f.constant(prometheus.CounterValue, name, help, float64(value), labels)
}

// Histogram gives durations, in seconds.
func (f Figures) Histogram(name, help string, h *model.Histogram, labels ...string) {
	names, values := pairs(labels)
	buckets := map[float64]uint64{}
	var below uint64
	for i, bound := range model.HistogramBounds {
		below += h.Counts[i]
		buckets[bound.Seconds()] = below
	}
	f.emit <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, names, nil), h.Count(), h.Sum.Seconds(), buckets, values...)
}

func (f Figures) constant(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	names, values := pairs(labels)
	f.emit <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
}

func pairs(labels []string) (names, values []string) {
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

// Collect adds a reader of figures.
func (m *Metrics) Collect(read func(Figures)) { m.registry.MustRegister(collector(read)) }

// collector describes nothing beforehand: which labels there are is only known
// when they are read.
type collector func(Figures)

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(emit chan<- prometheus.Metric) { c(Figures{emit}) }
