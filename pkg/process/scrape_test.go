package process

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// A metric has the value at the time of the scrape. When it is no longer emitted, it is no
// longer exported.
func TestMetricDisappearsWithItsSubject(t *testing.T) {
	metrics, err := NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	depth := map[string]float64{"g1": 3}
	var waits model.Histogram
	waits.Observe(20 * time.Millisecond)
	waits.Observe(-time.Second)
	metrics.Collect(func(f Scrape) {
		for group, n := range depth {
			f.Gauge("berth_test_depth", "Depth.", n, "group", group)
		}
		f.Counter("berth_test_total", "Total.", 7)
		f.Histogram("berth_test_seconds", "Waits.", &waits)
	})
	read := func() string { return scrapeOf(t, metrics) }
	text := read()
	for _, line := range []string{
		`berth_test_depth{group="g1"} 3`, "berth_test_total 7",
		`berth_test_seconds_bucket{le="0.01"} 1`, `berth_test_seconds_bucket{le="0.025"} 2`, "berth_test_seconds_count 2",
		"berth_test_seconds_sum 0.02",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, text)
		}
	}
	delete(depth, "g1")
	if text := read(); strings.Contains(text, "berth_test_depth") {
		t.Error("the metric of a deleted queue is still exported")
	}
}

// scrapeOf returns the metrics that a handler serves.
func scrapeOf(t *testing.T, metrics *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// Services in one process serve all metrics together. Metrics of one name differ in the
// label "part", and the metrics of the process are not repeated.
func TestPartsShareARegistry(t *testing.T) {
	whole, err := NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var parts []*Metrics
	for _, name := range []string{"a", "b"} {
		part, err := Common{Metrics: whole}.NewMetrics(name)
		if err != nil {
			t.Fatal(err)
		}
		part.Collect(func(f Scrape) { f.Gauge("berth_test", "Test.", 1, "kind", "x") })
		counter, err := part.Provider.Meter("berth").Int64Counter("berth_calls")
		if err != nil {
			t.Fatal(err)
		}
		counter.Add(t.Context(), 3)
		parts = append(parts, part)
	}
	for _, m := range append(parts, whole) {
		text := scrapeOf(t, m)
		for _, line := range []string{
			`berth_test{kind="x",part="a"} 1`, `berth_test{kind="x",part="b"} 1`,
			`berth_calls_total{part="a"} 3`, `berth_calls_total{part="b"} 3`,
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no line %q in:\n%s", line, text)
			}
		}
		for _, once := range []string{"\nberth_build_info{", "\ngo_goroutines ", "\nprocess_open_fds "} {
			if n := strings.Count(text, once); n != 1 {
				t.Errorf("%d of %q", n, once)
			}
		}
	}
	build := scrapeOf(t, parts[0])
	if !strings.Contains(build, `go_version="`+runtime.Version()+`",version="`+Version+`"} 1`) {
		t.Errorf("no build in:\n%s", build)
	}
}

// Every series has the cluster, so that one Prometheus can tell clusters apart: Berth's own,
// those of OpenTelemetry, of Go, of the process and of the scrapes. An agent learns the cluster
// when it registers.
func TestEverySeriesHasTheCluster(t *testing.T) {
	cluster := ""
	whole, err := NewMetrics(func() string { return cluster })
	if err != nil {
		t.Fatal(err)
	}
	part, err := Common{Metrics: whole}.NewMetrics("a")
	if err != nil {
		t.Fatal(err)
	}
	part.Collect(func(f Scrape) {
		f.Gauge("berth_test", "Test.", 1, "zone", "z", "area", "a")
		f.Histogram("berth_test_seconds", "Test.", &model.Histogram{})
	})
	counter, err := part.Provider.Meter("berth").Int64Counter("berth_calls")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	if text := scrapeOf(t, part); strings.Contains(text, "cluster=") {
		t.Errorf("a process that does not know its cluster shows:\n%s", text)
	}
	cluster = "east"
	for range 2 { // a scrape must not change the labels of the next one
		for _, m := range []*Metrics{whole, part} {
			series := 0
			for line := range strings.Lines(scrapeOf(t, m)) {
				if strings.HasPrefix(line, "#") {
					continue
				}
				series++
				if strings.Count(line, `cluster="east"`) != 1 {
					t.Errorf("%s", line)
				}
			}
			if series < 50 {
				t.Errorf("only %d series", series)
			}
		}
	}
	if text := scrapeOf(t, whole); !strings.Contains(text, `berth_test{area="a",cluster="east",part="a",zone="z"} 1`) {
		t.Errorf("the labels are not in order:\n%s", text)
	}
}
