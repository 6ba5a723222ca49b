package internal

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/replica"
	"berth.dev/services/assigner/dispatch"
)

// Snapshot has the values of the assigner's metrics.
type Snapshot struct {
	stats    dispatch.Stats
	metrics  dispatch.Metrics
	findings map[string]int
}

// TakeSnapshot returns the current values of a core. It must be called on the goroutine
// that owns the core.
func TakeSnapshot(c *dispatch.Core) Snapshot {
	return Snapshot{
		stats: c.Stats(), metrics: c.Metrics(),
		findings: replica.CountFindings(dispatch.FindingKinds, c.Findings(time.Now())),
	}
}

// ShowMetrics emits the metrics of a snapshot. No label contains a name that a user chose.
func ShowMetrics(f process.Scrape, s Snapshot) {
	f.Gauge("berth_assigner_tasks", "Leases that are dispatched and not freed yet.", float64(s.stats.Tasks))
	for state := model.WorkerAssigned; state <= model.WorkerEvicted; state++ {
		f.Gauge("berth_assigner_workers", "Workers of these leases by state.", float64(s.stats.Workers[state]), "state",
			state.String())
	}
	f.Gauge("berth_assigner_agent_requests_in_flight", "Start and stop requests to agents in flight.", float64(s.stats.InFlight))
	f.Gauge("berth_assigner_agent_requests_queued", "Start and stop requests to agents that are queued.",
		float64(s.stats.Waiting))
	f.Gauge("berth_assigner_orphaned_workers", "Orphaned workers that are being stopped.", float64(s.stats.Orphans))
	f.Gauge("berth_assigner_dispatches_pending", "Dispatches that wait for the view.", float64(s.stats.Creates))

	f.Counter("berth_assigner_attempts_total", "Start requests that were sent.", s.metrics.Attempts)
	countReasons(f, "berth_assigner_retries_total", "Attempts that failed and were followed by another, by reason.",
		s.metrics.Retries)
	countReasons(f, "berth_assigner_failures_total", "Workers that ended FAILED or LOST, by reason.", s.metrics.Failures)
	f.Counter("berth_assigner_requeues_total", "Workers marked to be queued again.", s.metrics.Requeues)
	f.Counter("berth_assigner_withdrawn_total", "Versions that were withdrawn because their gang could not start together or restarts.", s.metrics.Withdrawn)
	f.Counter("berth_assigner_lifetimes_total", "Workers that were stopped at the end of their lifetime.",
		s.metrics.Lifetimes)
	f.Counter("berth_assigner_evictions_overdue_total", "Workers that took longer than their grace period to end.",
		s.metrics.Overdue)

	f.Histogram("berth_assigner_assign_duration_seconds",
		"From the grant of a lease until a worker's executor has acknowledged it.", &s.metrics.Assign)
	f.Histogram("berth_assigner_assign_batch_duration_seconds",
		"From the grant of a lease until its last worker is acknowledged.", &s.metrics.AssignBatch)
	f.Histogram("berth_assigner_run_duration_seconds", "From the grant of a lease until a worker runs.", &s.metrics.Run)
	f.Histogram("berth_assigner_load_seconds",
		"From the acknowledgement of a worker with readiness REPORTED until it runs.", &s.metrics.Load)
	replica.ShowFindings(f, model.ServiceAssigner, s.findings)
}

func countReasons(f process.Scrape, name, help string, counts map[fault.Reason]uint64) {
	for reason, n := range counts {
		f.Counter(name, help, n, "reason", string(reason))
	}
}
