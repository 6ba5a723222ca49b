package internal

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/services/assigner/dispatch"
)

// Snapshot is what the figures of the assigner are made of.
type Snapshot struct {
	stats    dispatch.Stats
	figures  dispatch.Figures
	findings map[string]int
}

// Take reads a core, on the goroutine that owns it.
func Take(c *dispatch.Core) Snapshot {
	s := Snapshot{stats: c.Stats(), figures: c.Figures(), findings: map[string]int{}}
	for _, kind := range dispatch.FindingKinds {
		s.findings[kind] = 0
	}
	for _, f := range c.Findings(time.Now()) {
		s.findings[f.Kind]++
	}
	return s
}

// Show makes figures of a snapshot. No label holds a name that a user chose.
func Show(f process.Figures, s Snapshot) {
	f.Gauge("berth_assigner_tasks", "Leases that are dispatched and not free yet.", float64(s.stats.Tasks))
	for state := model.WorkerAssigned; state <= model.WorkerEvicted; state++ {
		f.Gauge("berth_assigner_workers", "Workers of these leases by state.", float64(s.stats.Workers[state]), "state", state.String())
	}
	f.Gauge("berth_assigner_orders_in_flight", "Orders to agents under way.", float64(s.stats.InFlight))
	f.Gauge("berth_assigner_orders_waiting", "Orders to agents that wait: for room, for a pause to end or for the agent.", float64(s.stats.Waiting))
	f.Gauge("berth_assigner_strays", "Workers that agents have and should not.", float64(s.stats.Strays))
	f.Gauge("berth_assigner_dispatches_waiting", "Dispatches that wait for the view.", float64(s.stats.Creates))

	f.Counter("berth_assigner_attempts_total", "Orders to start a worker that were sent.", s.figures.Attempts)
	reasons(f, "berth_assigner_retries_total", "Attempts that failed and were followed by another, by reason.", s.figures.Retries)
	reasons(f, "berth_assigner_failures_total", "Workers that ended FAILED or LOST, by reason.", s.figures.Failures)
	f.Counter("berth_assigner_requeues_total", "Workers marked to be queued again.", s.figures.Requeues)
	f.Counter("berth_assigner_withdrawn_total", "Batches that did not start together.", s.figures.Withdrawn)
	f.Counter("berth_assigner_evictions_overdue_total", "Workers that took longer than their grace to end.", s.figures.Overdue)

	f.Histogram("berth_assigner_assign_duration_seconds", "From the grant of a lease until a worker's executor has acknowledged it.", &s.figures.Assign)
	f.Histogram("berth_assigner_assign_batch_duration_seconds", "From the grant of a lease until its last worker is acknowledged.", &s.figures.AssignBatch)
	f.Histogram("berth_assigner_run_duration_seconds", "From the grant of a lease until a worker runs.", &s.figures.Run)
	for kind, n := range s.findings {
		f.Gauge("berth_assigner_findings", "What missed its deadline, by kind.", float64(n), "kind", kind)
	}
}

func reasons(f process.Figures, name, help string, counts map[fault.Reason]uint64) {
	for reason, n := range counts {
		f.Counter(name, help, n, "reason", string(reason))
	}
}
