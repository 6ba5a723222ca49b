package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// Finding is a thing that should not be: it missed its deadline, and is not
// forgotten for it, or it is a worker that no record wants.
type Finding struct {
	Kind string
	// Object names the worker: job/stage/index.number.
	Object string
	Since  time.Time
	// Message says what is the matter, Action what is done about it.
	Message, Action string
}

// deadlines are the rows of Edges that somebody waits for, by state.
var deadlines = func() (rows [model.WorkerEvicted + 1]*Edge) {
	for i := range Edges {
		if Edges[i].Deadline > 0 {
			rows[Edges[i].From] = &Edges[i]
		}
	}
	return rows
}()

// missed answers the edge whose deadline a worker has missed; nil for none.
func (c *Core) missed(now time.Time, t *task, w *model.TaskWorker) *Edge {
	e := deadlines[w.State]
	if e == nil {
		return nil
	}
	deadline := e.Deadline
	if e.Grace {
		deadline += c.grace(t.uid)
	}
	if now.Sub(w.Since) <= deadline {
		return nil
	}
	return e
}

// finding says whether a worker has missed the deadline of its state.
func (c *Core) finding(now time.Time, t *task, w *model.TaskWorker) (Finding, bool) {
	e := c.missed(now, t, w)
	if e == nil {
		return Finding{}, false
	}
	message := fmt.Sprintf("%s on %s, attempts: %d", w.State, c.executorID(w.Ordinal), w.Attempts)
	if w.LastError != "" {
		message += "; last: " + w.LastError
	}
	return Finding{Kind: e.Miss, Object: t.worker(w.ID).String(), Since: w.Since, Message: message, Action: e.Action}, true
}

// strays finds what executors have and should not, from when it was first heard
// of until its end is. Since when, and how often it was told to stop, is known
// to this leader alone.
func (c *Core) strays() (all []Finding) {
	action := actionStray
	if !c.ready {
		action = actionHeld
	}
	for ordinal, h := range c.hosts {
		for of, o := range h.strays {
			all = append(all, Finding{
				Kind: FindingStray, Object: of.worker.String(), Since: o.since,
				Message: fmt.Sprintf("%s has it, at epoch %d, and should not: %s; orders to stop: %d", c.executorID(ordinal), of.epoch, o.why, o.sent),
				Action:  action,
			})
		}
	}
	return all
}

// Findings answers what has missed its deadline by now, and what executors
// should not have, in order of object: what it is, since when, and what is done
// about it.
func (c *Core) Findings(now time.Time) []Finding {
	all := append(c.strays(), c.refusalFindings()...)
	for _, uid := range c.uids {
		t := c.tasks[uid]
		if !t.active() || t.header.Ended {
			continue
		}
		for _, chunk := range t.chunks {
			for i := range size(chunk) {
				if f, missed := c.finding(now, t, &chunk.Workers[i]); missed {
					all = append(all, f)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Kind, b.Kind), a.Since.Compare(b.Since), cmp.Compare(a.Message, b.Message))
	})
	return all
}
