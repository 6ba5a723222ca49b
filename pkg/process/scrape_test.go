package process

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// A metric has the value at the time of the scrape. When it is no longer emitted, it is no
// longer exported.
func TestMetricDisappearsWithItsSubject(t *testing.T) {
	metrics, err := NewMetrics()
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
	read := func() string {
		answer := httptest.NewRecorder()
		metrics.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
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
