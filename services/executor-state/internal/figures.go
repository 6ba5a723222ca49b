package internal

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/executor-state/inventory"
)

// maxLabels bounds the values of a label that users choose: the largest are
// shown, the rest summed as otherLabel.
const (
	maxLabels  = 100
	otherLabel = "other"
)

// ShowFigures has the metrics show what the leader's inventory counts.
func ShowFigures(r *replica.Replica, l *loop.Loop[*inventory.Core]) {
	replica.CollectMetrics(r, l, func(c *inventory.Core) inventory.Metrics { return c.Metrics(time.Now()) }, show)
}

func show(f process.Figures, s inventory.Metrics) {
	const prefix = "berth_executor_state_"
	sizes := map[string]float64{}
	for key, n := range s.Executors {
		sizes[key.SKU] += float64(n)
	}
	shown := largest(sizes)
	executors := map[[2]string]float64{}
	for key, n := range s.Executors {
		executors[[2]string{shown(key.SKU), key.State.String()}] += float64(n)
	}
	for key, n := range executors {
		f.Gauge(prefix+"executors", "Executors by SKU and state.", n, "sku", key[0], "state", key[1])
	}
	f.Gauge(prefix+"executors_disabled", "Executors that a request takes out of allocation.", float64(s.Disabled))
	f.Gauge(prefix+"leases", "Leases that hold a worker.", float64(s.Leases))

	shown = largest(s.Capacity)
	amounts(f, prefix+"capacity", "What executors that are not LOST have, in base units.", shown, s.Capacity)
	amounts(f, prefix+"used", "What leases hold of them, in base units.", shown, s.Used)

	for key, n := range s.Attempts {
		f.Counter(prefix+"lease_attempts_total", "Tries to lease, by how they came out.", n,
			"result", strings.ToUpper(key.Result.String()), "reason", string(key.Reason))
	}
	f.Histogram(prefix+"lease_duration_seconds", "How long leases lasted that have ended.", &s.Held)
	f.Counter(prefix+"executors_lost_total", "Executors whose workers were given up.", s.Losses)
	for kind, n := range s.Findings {
		f.Gauge(prefix+"findings", "What an operator should know of, by kind.", float64(n), "kind", kind)
	}
}

func amounts(f process.Figures, name, help string, shown func(string) string, amounts map[string]float64) {
	sums := map[string]float64{}
	for resource, amount := range amounts {
		sums[shown(resource)] += amount
	}
	for resource, sum := range sums {
		f.Gauge(name, help, sum, "resource", resource)
	}
}

// largest answers how names are shown as labels: those with the largest values
// as they are, the others as one.
func largest(values map[string]float64) func(name string) string {
	if len(values) <= maxLabels {
		return func(name string) string { return name }
	}
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b))
	})
	shown := make(map[string]bool, maxLabels)
	for _, name := range names[:maxLabels] {
		shown[name] = true
	}
	return func(name string) string {
		if shown[name] {
			return name
		}
		return otherLabel
	}
}
