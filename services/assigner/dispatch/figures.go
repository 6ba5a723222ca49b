package dispatch

import (
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Figures is what a core has counted since it was elected. What rests on an
// effect is counted once that is durable.
type Figures struct {
	// Attempts are the orders to start a worker that were answered, or not in
	// time; Retries those that failed and are followed by another, by reason.
	Attempts uint64
	Retries  map[fault.Reason]uint64
	// Assign and AssignBatch take the time from a lease's grant until the
	// executor of a worker, and of the last worker of a batch, has acknowledged
	// it; Run that until a worker runs.
	Assign, AssignBatch, Run model.Histogram
	// Failures are the workers that ended FAILED or LOST, by reason.
	Failures map[fault.Reason]uint64
	// Requeues are workers marked to be queued again, Withdrawn batches that did
	// not start together.
	Requeues, Withdrawn uint64
	// Overdue are the workers that took longer than their grace to end.
	Overdue uint64
}

func newFigures() Figures {
	return Figures{Retries: map[fault.Reason]uint64{}, Failures: map[fault.Reason]uint64{}}
}

// maxFigureReasons bounds the reasons told apart: agents choose theirs.
const maxFigureReasons = 24

// reasonOther stands for the reasons beyond the bound.
const reasonOther fault.Reason = "OTHER"

// count adds one to a reason's figure.
func count(figures map[fault.Reason]uint64, reason fault.Reason) {
	if _, known := figures[reason]; !known && len(figures) >= maxFigureReasons {
		reason = reasonOther
	}
	figures[reason]++
}

// add counts what became durable.
func (f *Figures) add(o observed) {
	switch o.what {
	case sawRetry:
		count(f.Retries, o.reason)
	case sawAssigned:
		f.Assign.Observe(o.took)
	case sawBatchAssigned:
		f.AssignBatch.Observe(o.took)
	case sawRunning:
		f.Run.Observe(o.took)
	case sawFailure:
		count(f.Failures, o.reason)
	case sawRequeue:
		f.Requeues++
	case sawWithdrawn:
		f.Withdrawn++
	case sawOverdue:
		f.Overdue++
	}
}

// observed is one thing to be counted once it is durable.
type observed struct {
	what   sight
	reason fault.Reason
	took   time.Duration
}

type sight uint8

const (
	sawRetry sight = iota
	sawAssigned
	sawBatchAssigned
	sawRunning
	sawFailure
	sawRequeue
	sawWithdrawn
	sawOverdue
)

// pending are observations that rest on the effects up to one of them.
type pending struct {
	observed []observed
	after    int
}

// observe notes what there is to count about a worker that moves.
func (d *draft) observe(c *Core, was, next *model.TaskWorker) {
	saw := func(o observed) { d.observed = append(d.observed, o) }
	running := next.State == model.WorkerRunning
	if was.State == model.WorkerAssigned {
		d.placed++
		if running || next.State == model.WorkerStarting {
			d.acknowledged = true
			saw(observed{what: sawAssigned, took: c.sinceGrant(d.t)})
		}
	}
	if running {
		saw(observed{what: sawRunning, took: c.sinceGrant(d.t)})
	}
	switch {
	case next.Requeue:
		saw(observed{what: sawRequeue})
	case next.State == model.WorkerFailed, next.State == model.WorkerLost:
		saw(observed{what: sawFailure, reason: next.Reason})
	}
	stopping := was.State == model.WorkerEvict || was.State == model.WorkerEvicting
	if stopping && next.State.Terminal() && c.now.Sub(was.Since) > c.grace(d.t.uid) {
		saw(observed{what: sawOverdue})
	}
}

// sinceGrant is the time since a task's lease was granted; since the task was
// created where the lease is gone already.
func (c *Core) sinceGrant(t *task) time.Duration {
	granted := t.header.CreatedAt
	for _, chunk := range c.leases[t.uid].chunks {
		granted = chunk.GrantedAt // that of all chunks
		break
	}
	return c.now.Sub(granted)
}

// settleFigures counts what is durable by now.
func (c *Core) settleFigures() {
	n := 0
	for ; n < len(c.pending) && c.pending[n].after <= c.durable; n++ {
		for _, o := range c.pending[n].observed {
			c.figures.add(o)
		}
	}
	c.pending = slices.Delete(c.pending, 0, n)
}

// Figures answers what was counted since the core was elected.
func (c *Core) Figures() Figures {
	f := c.figures
	f.Retries, f.Failures = maps.Clone(f.Retries), maps.Clone(f.Failures)
	return f
}
