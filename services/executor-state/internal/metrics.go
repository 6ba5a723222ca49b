package internal

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/executor-state/usage"
)

// maxLabelValues limits the values of a label that users choose. The values with the
// largest metrics are labels of their own. All others are summed as otherLabel.
const (
	maxLabelValues = 100
	otherLabel     = "other"
)

const prefix = "berth_executor_state_" // the prefix of all metrics

// CollectMetrics registers the metrics of the inventory, which are reported while the
// replica leads.
func CollectMetrics(r *replica.Replica, l *loop.Loop[*inventory.Core]) {
	replica.CollectMetrics(r, l, func(c *inventory.Core) inventory.Metrics { return c.Metrics(time.Now()) }, show)
}

func show(f process.Scrape, s inventory.Metrics) {
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
	f.Gauge(prefix+"executors_disabled", "Executors that are disabled by a request.", float64(s.Disabled))
	f.Gauge(prefix+"leases", "Leases that hold a worker.", float64(s.Leases))

	shown = largest(s.Capacity)
	amounts(f, prefix+"capacity", "Capacity of executors that are not LOST, by resource in base units.", shown, s.Capacity)
	amounts(f, prefix+"used", "Capacity that leases and volumes use, by resource in base units.", shown, s.Used)
	for state := model.VolumePlanned; state <= model.VolumeDestroying; state++ {
		f.Gauge(prefix+"volumes", "Volumes by state.", float64(s.Volumes[state]), "state", state.String())
	}
	for state := model.CellPending; state <= model.CellWithdrawn; state++ {
		f.Gauge(prefix+"offers", "Answers of cells in offers, by state.", float64(s.Offers[state]), "state", state.String())
	}
	for id, h := range s.Answers {
		f.Histogram(prefix+"offer_answer_seconds", "Time from the question to the answer, by cell.", &h, "cell", id)
	}
	amounts(f, prefix+"volumes_held", "Capacity that volumes hold, by resource in base units.", shown, s.Held)

	for key, n := range s.Attempts {
		f.Counter(prefix+"lease_attempts_total", "Attempts to lease, by outcome and reason.", n,
			"outcome", key.Result.String(), "reason", string(key.Reason))
	}
	f.Histogram(prefix+"lease_duration_seconds", "Duration of leases that have ended.", &s.LeaseDurations)
	f.Counter(prefix+"executors_lost_total", "Executors that were declared LOST.", s.Losses)
	replica.ShowFindings(f, model.ServiceExecutorState, replica.CountFindings(inventory.FindingKinds, s.Findings))
	if s.Usage != nil {
		showUsage(f, *s.Usage)
	}
}

// showUsage emits the usage by SKU. Executors without a SKU have an empty label.
func showUsage(f process.Scrape, u usage.Usage) {
	sizes := map[string]float64{}
	for _, row := range u.SKUs {
		sizes[row.SKU] = float64(max(int64(row.Total), row.WantedSize))
	}
	shown := largest(sizes)
	total, wanted, pending, idle := map[string]float64{}, map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, row := range u.SKUs {
		sku := shown(row.SKU)
		total[sku] += float64(row.Total)
		wanted[sku] += float64(row.WantedSize)
		pending[sku] += float64(row.PendingExecutors)
		idle[sku] += float64(row.EffectiveIdle)
	}
	for sku := range total {
		f.Gauge(prefix+"sku_size", "Executors that are not LOST, by SKU.", total[sku], "sku", sku)
		f.Gauge(prefix+"sku_wanted_size", "Size that the scale rule of the SKU advises; sku_size without a rule.",
			wanted[sku], "sku", sku)
		f.Gauge(prefix+"sku_pending_executors", "Empty executors that the pending demand needs, by SKU.", pending[sku],
			"sku", sku)
		f.Gauge(prefix+"sku_effective_idle", "Idle executors that no pending demand needs, by SKU.", idle[sku], "sku", sku)
	}
	var reservations int
	var workers int64
	for _, group := range u.Unmapped {
		reservations += group.Reservations
		workers += group.Workers
	}
	f.Gauge(prefix+"unmapped_reservations", "Pending reservations that no SKU fits.", float64(reservations))
	f.Gauge(prefix+"unmapped_workers", "Workers of pending reservations that no SKU fits.", float64(workers))
}

func amounts(f process.Scrape, name, help string, shown func(string) string, amounts map[string]float64) {
	sums := map[string]float64{}
	for resource, amount := range amounts {
		sums[shown(resource)] += amount
	}
	for resource, sum := range sums {
		f.Gauge(name, help, sum, "resource", resource)
	}
}

// largest returns a function from names to labels. The names with the largest values are
// their own labels, and all other names share one label.
func largest(values map[string]float64) func(name string) string {
	if len(values) <= maxLabelValues {
		return func(name string) string { return name }
	}
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b))
	})
	shown := make(map[string]bool, maxLabelValues)
	for _, name := range names[:maxLabelValues] {
		shown[name] = true
	}
	return func(name string) string {
		if shown[name] {
			return name
		}
		return otherLabel
	}
}

// streamMetrics counts the streams of agents on this replica and their heartbeats,
// whether or not the replica leads. The zero value is ready to use.
type streamMetrics struct {
	mu    sync.Mutex
	count int
	late  model.Histogram
}

func (m *streamMetrics) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += n
}

// heartbeat counts a heartbeat by the time since the previous heartbeat. A heartbeat that
// an agent sends early, with a report, is not late.
func (m *streamMetrics) heartbeat(after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late.Observe(after - HeartbeatEvery)
}

// Show reports the metrics of the heartbeats. process.Metrics calls it.
func (h *Heartbeats) Show(f process.Scrape) {
	m := &h.streams
	m.mu.Lock()
	count, late := m.count, m.late
	m.mu.Unlock()
	f.Gauge(prefix+"heartbeat_streams", "Agents whose heartbeats this replica handles.", float64(count))
	f.Histogram(prefix+"heartbeat_lateness_seconds",
		"Time by which the interval between two heartbeats of an agent exceeds the required interval.", &late)
}
