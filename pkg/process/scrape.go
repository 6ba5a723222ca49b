package process

import (
	"github.com/prometheus/client_golang/prometheus"

	"berth.dev/pkg/model"
)

// Scrape receives the metrics of one scrape. If a function does not emit a metric, the
// answer of this scrape does not contain the metric. Names must start with "berth_".
// Labels are pairs of name and value, and must not contain a job or a reservation.
type Scrape struct {
	emit chan<- prometheus.Metric
}

// Gauge emits a value that rises and falls.
func (s Scrape) Gauge(name, help string, value float64, labels ...string) {
	s.constant(prometheus.GaugeValue, name, help, value, labels)
}

// Counter emits a value that only rises during one term.
func (s Scrape) Counter(name, help string, value uint64, labels ...string) {
	s.constant(prometheus.CounterValue, name, help, float64(value), labels)
}

// Histogram emits durations, in seconds.
func (s Scrape) Histogram(name, help string, h *model.Histogram, labels ...string) {
	names, values := pairs(labels)
	buckets := map[float64]uint64{}
	var below uint64
	for i, bound := range model.HistogramBounds {
		below += h.Counts[i]
		buckets[bound.Seconds()] = below
	}
	s.emit <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, names, nil), h.Count(), h.Sum.Seconds(),
		buckets, values...)
}

func (s Scrape) constant(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	names, values := pairs(labels)
	s.emit <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
}

func pairs(labels []string) (names, values []string) {
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return names, values
}

// Collect adds a function that each scrape calls.
func (m *Metrics) Collect(read func(Scrape)) { m.registerer.MustRegister(collector(read)) }

// collector does not describe its metrics in advance, because it knows their labels only
// during a scrape.
type collector func(Scrape)

func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(emit chan<- prometheus.Metric) { c(Scrape{emit}) }
