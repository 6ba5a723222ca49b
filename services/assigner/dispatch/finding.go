package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// Finding is a fault of one object, for example a worker that missed a deadline.
type Finding struct {
	Kind string
	// Object is the full name of a worker, or the ID of an executor.
	Object string
	Since  time.Time
	// Message describes the fault, and Action says what Berth does about it.
	Message, Action string
}

// deadlines are the rows of Edges with a deadline, by state.
var deadlines = func() (rows [model.WorkerEvicted + 1]*Edge) {
	for i := range Edges {
		if Edges[i].Deadline > 0 {
			rows[Edges[i].From] = &Edges[i]
		}
	}
	return rows
}()

// missed returns the edge whose deadline a worker has missed, and the time from which the
// deadline counts, or nil. The deadline of a start counts from when its executor began it.
func (c *Core) missed(now time.Time, t *task, w *model.TaskWorker) (e *Edge, since time.Time) {
	e, since = deadlines[w.State], w.Since.Time()
	if w.Unconfirmed {
		return deadlines[model.WorkerEvict], since
	}
	if e == nil {
		return nil, since
	}
	if began, reported := c.starts[workerKey{w.Ordinal, t.uid, w.ID}]; reported && w.State == model.WorkerStarting {
		if began.IsZero() {
			return nil, since
		}
		if began.After(since) {
			since = began
		}
	}
	deadline, grace := e.Deadline, c.grace(workerKey{w.Ordinal, t.uid, w.ID})
	if e.Grace {
		deadline += grace
	}
	if limit := c.spec(t.uid).Task.StartLimit(); e.StartLimit && limit > 0 {
		deadline = max(deadline, limit+grace)
	}
	if now.Sub(since) <= deadline {
		return nil, since
	}
	return e, since
}

// deadlineFinding returns the finding about a worker that has missed the deadline of e.
func (c *Core) deadlineFinding(t *task, w *model.TaskWorker, e *Edge, since time.Time) Finding {
	message := fmt.Sprintf("%s on %s, attempts: %d", w.State, c.executorID(w.Ordinal), w.Attempts)
	if !w.LastError.IsEmpty() {
		message += "; last: " + w.LastError.String()
	}
	return Finding{Kind: e.Miss, Object: t.worker(w.ID).String(), Since: since, Message: message, Action: e.Action}
}

// orphanFindings returns a finding for each orphaned worker, from the first report of the
// worker to this leader until the worker's end. The time and the number of stop requests
// count from the start of this leader's term.
func (c *Core) orphanFindings() (all []Finding) {
	action := actionOrphanedWorker
	if !c.ready {
		action = actionNotReady
	}
	for ordinal, h := range c.hosts {
		for target, r := range h.orphans {
			all = append(all, Finding{
				Kind: FindingOrphanedWorker, Object: target.worker.String(), Since: r.since,
				Message: fmt.Sprintf("%s has this worker at epoch %d, and should not: %s; stop requests: %d",
					c.executorID(ordinal), target.epoch, r.why, r.sent),
				Action: action,
			})
		}
	}
	return all
}

// Findings returns the findings about missed deadlines, orphaned workers and executors that
// refuse this service, in order of object.
func (c *Core) Findings(now time.Time) []Finding {
	all := append(c.orphanFindings(), c.refusalFindings()...)
	for uid := range c.uids.All() {
		t := c.tasks[uid]
		if !t.active() || t.header.Ended && t.unconfirmed == 0 {
			continue
		}
		for _, chunk := range t.chunks {
			for i := range size(chunk) {
				if e, since := c.missed(now, t, &chunk.Workers[i]); e != nil {
					all = append(all, c.deadlineFinding(t, &chunk.Workers[i], e, since))
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Kind, b.Kind), a.Since.Compare(b.Since),
			cmp.Compare(a.Message, b.Message))
	})
	return all
}
