package internal

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/executor-state/usage"
)

// scrape returns the metrics text of a scrape.
func scrape(t *testing.T, show func(process.Scrape)) string {
	t.Helper()
	metrics, err := process.NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	metrics.Collect(show)
	w := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var ours []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "berth_") {
			ours = append(ours, strings.TrimSpace(line))
		}
	}
	return strings.Join(ours, "\n")
}

func read(t *testing.T, s *inventory.Metrics) string {
	t.Helper()
	return scrape(t, func(f process.Scrape) { show(f, *s) })
}

func TestMetrics(t *testing.T) {
	s := &inventory.Metrics{
		Executors: map[inventory.SKUState]int{{SKU: "small", State: model.ExecutorReady}: 3},
		Disabled:  1, Leases: 2, Losses: 4,
		Capacity: map[string]float64{"cpu": 8000}, Used: map[string]float64{"cpu": 2000},
		Attempts: map[inventory.Attempt]uint64{{Result: model.NoFit, Reason: "INSUFFICIENT_CAPACITY"}: 5},
		Findings: []inventory.Finding{{Kind: inventory.FindingMassLoss}},
		Usage: &usage.Usage{
			SKUs: []usage.SKUUsage{
				{SKU: "large", Total: 2, Advice: usage.Advice{WantedSize: 5}, PendingExecutors: 3, EffectiveIdle: 0},
				{SKU: "small", Total: 3, Advice: usage.Advice{WantedSize: 3}, PendingExecutors: 0, EffectiveIdle: 1},
			},
			Unmapped: []usage.Unmapped{{Reservations: 1, Workers: 4}, {Reservations: 2, Workers: 3}},
		},
	}
	s.LeaseDurations.Observe(2 * time.Second)
	text := read(t, s)
	for _, want := range []string{
		`berth_executor_state_executors{sku="small",state="READY"} 3`,
		`berth_executor_state_executors_disabled 1`,
		`berth_executor_state_leases 2`,
		`berth_executor_state_capacity{resource="cpu"} 8000`,
		`berth_executor_state_used{resource="cpu"} 2000`,
		`berth_executor_state_lease_attempts_total{outcome="no_fit",reason="INSUFFICIENT_CAPACITY"} 5`,
		`berth_executor_state_lease_duration_seconds_sum 2`,
		`berth_executor_state_executors_lost_total 4`,
		`berth_executor_state_findings{kind="MASS_LOSS"} 1`,
		`berth_executor_state_findings{kind="OVERCOMMITTED"} 0`,
		`berth_executor_state_sku_size{sku="large"} 2`,
		`berth_executor_state_sku_wanted_size{sku="large"} 5`,
		`berth_executor_state_sku_pending_executors{sku="large"} 3`,
		`berth_executor_state_sku_effective_idle{sku="small"} 1`,
		`berth_executor_state_unmapped_reservations 3`,
		`berth_executor_state_unmapped_workers 7`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// When a group disappears, its gauge disappears too and does not keep its last value.
func TestPitfallGaugeDisappearsWithItsGroup(t *testing.T) {
	s := &inventory.Metrics{Executors: map[inventory.SKUState]int{{SKU: "small", State: model.ExecutorReady}: 3}}
	if text := read(t, s); !strings.Contains(text, "small") {
		t.Fatal(text)
	}
	s.Executors = nil
	if text := read(t, s); strings.Contains(text, "small") {
		t.Fatal(text)
	}
}

// The names that users choose cannot create an unlimited number of series.
func TestLabelValuesAreLimited(t *testing.T) {
	s := &inventory.Metrics{Executors: map[inventory.SKUState]int{}, Capacity: map[string]float64{},
		Used: map[string]float64{}, Usage: &usage.Usage{}}
	for i := range 150 {
		s.Executors[inventory.SKUState{SKU: fmt.Sprintf("sku-%03d", i), State: model.ExecutorReady}] = i + 1
		s.Capacity[fmt.Sprintf("r-%03d", i)] = float64(i + 1)
		s.Used[fmt.Sprintf("r-%03d", i)] = 1
		s.Usage.SKUs = append(s.Usage.SKUs, usage.SKUUsage{
			SKU: fmt.Sprintf("sku-%03d", i), Total: i + 1, Advice: usage.Advice{WantedSize: 1},
		})
	}
	text := read(t, s)
	if n := strings.Count(text, "berth_executor_state_executors{"); n != maxLabelValues+1 {
		t.Errorf("%d series of executors", n)
	}
	for _, want := range []string{
		`berth_executor_state_executors{sku="other",state="READY"} 1275`,
		`berth_executor_state_executors{sku="sku-050",state="READY"} 51`,
		`berth_executor_state_used{resource="other"} 50`,
		`berth_executor_state_sku_size{sku="other"} 1275`,
		`berth_executor_state_sku_wanted_size{sku="other"} 50`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
