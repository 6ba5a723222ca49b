package dispatch

import (
	"maps"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Metrics has the counts of a core since it was elected. An event that is part of an effect
// is counted once the effect is durable.
type Metrics struct {
	// Attempts counts the start requests that were answered or have timed out. Retries
	// counts the failed start requests that the core repeats, by reason.
	Attempts uint64
	Retries  map[fault.Reason]uint64
	// Assign has the time from the grant of a lease until an executor has acknowledged a
	// worker, and AssignBatch the time until the last worker of the lease is acknowledged.
	// Run has the time from the grant until a worker runs, and Load the time from the
	// acknowledgement of a worker with readiness REPORTED until the worker runs.
	Assign, AssignBatch, Run, Load model.Histogram
	// Failures counts the workers that ended FAILED or LOST, by reason.
	Failures map[fault.Reason]uint64
	// Requeues counts the workers that were marked for a requeue, and Withdrawn the gangs
	// that could not start together.
	Requeues, Withdrawn uint64
	// Lifetimes counts the workers that were stopped at the end of their lifetime.
	Lifetimes uint64
	// Overdue counts the workers that took longer than their grace period to end.
	Overdue uint64
}

func newMetrics() Metrics {
	return Metrics{Retries: map[fault.Reason]uint64{}, Failures: map[fault.Reason]uint64{}}
}

// maxMetricReasons bounds the reasons that are counted separately, because agents choose
// the reasons of their refusals.
const maxMetricReasons = 24

// reasonOther stands for the reasons beyond the bound.
const reasonOther fault.Reason = "OTHER"

// countReason adds one to the count of a reason.
func countReason(counts map[fault.Reason]uint64, reason fault.Reason) {
	if _, known := counts[reason]; !known && len(counts) >= maxMetricReasons {
		reason = reasonOther
	}
	counts[reason]++
}

// count adds an observation that is made once the draft is durable.
func (d *draft) count(observation func(*Metrics)) {
	d.observations = append(d.observations, observation)
}

// observeDurable makes the observations once everything decided so far is durable.
func (c *Core) observeDurable(observations []func(*Metrics)) {
	if len(observations) == 0 {
		return
	}
	c.journal.Outcome(func(durable bool) {
		for _, observe := range observations {
			if durable {
				observe(&c.metrics)
			}
		}
	})
}

// observe drafts the metrics of a worker's new state.
func (c *Core) observe(d *draft, was, next *model.TaskWorker) {
	took, running := c.sinceGrant(d.t), next.State == model.WorkerRunning
	if was.State == model.WorkerAssigned {
		d.placed++
		if running || next.State == model.WorkerStarting {
			d.acknowledged = true
			d.count(func(m *Metrics) { m.Assign.Observe(took) })
		}
	}
	if running {
		d.count(func(m *Metrics) { m.Run.Observe(took) })
		reports := c.spec(d.t.uid).Task.Readiness == model.ReadyReported
		if load := c.now.Sub(was.Since.Time()); reports && was.State == model.WorkerStarting {
			d.count(func(m *Metrics) { m.Load.Observe(load) })
		}
	}
	if next.State == model.WorkerEvict && next.Reason == fault.ReasonLifetime {
		d.count(func(m *Metrics) { m.Lifetimes++ })
	}
	switch reason := next.Reason; {
	case next.Requeue:
		d.count(func(m *Metrics) { m.Requeues++ })
	case next.State == model.WorkerFailed, next.State == model.WorkerLost:
		d.count(func(m *Metrics) { countReason(m.Failures, reason) })
	}
	stopping := was.State == model.WorkerEvict || was.State == model.WorkerEvicting
	key := workerKey{next.Ordinal, d.t.uid, next.ID}
	if stopping && next.State.Terminal() && c.now.Sub(was.Since.Time()) > c.grace(key) {
		d.count(func(m *Metrics) { m.Overdue++ })
	}
}

// sinceGrant returns the time since a task's lease was granted. If the lease was
// deleted, it returns the time since the task was created.
func (c *Core) sinceGrant(t *task) time.Duration {
	granted := t.header.CreatedAt
	for _, chunk := range c.leases[t.uid].chunks {
		granted = chunk.GrantedAt // the same in all chunks
		break
	}
	return c.now.Sub(granted)
}

// Metrics returns a copy of the counts since the core was elected.
func (c *Core) Metrics() Metrics {
	m := c.metrics
	m.Retries, m.Failures = maps.Clone(m.Retries), maps.Clone(m.Failures)
	return m
}
