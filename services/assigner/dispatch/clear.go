package dispatch

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// clearQuarantine handles an operator's statement that quarantined workers have exited: the
// workers become LOST as if their executor were LOST. The request names each worker with
// its epoch, and each cleared worker stores the request's ID, so a repeated request affects
// and counts the same workers.
//
// The statement may be wrong. If the executor still has such a worker, the core stops that
// worker as an orphan: at once if the executor is present, otherwise after its next report.
func (c *Core) clearQuarantine(request Clear) (Cleared, error) {
	ordinal, known := c.ordinals[request.Executor]
	if !known {
		return Cleared{}, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", request.Executor)
	}
	var answer Cleared
	var exited []position
	seen := map[position]bool{{}: true}
	for i, p := range c.locate(request.Workers) {
		if seen[p] {
			continue
		}
		seen[p] = true
		switch w := c.read(p.t, p.at); {
		case w.Ordinal != ordinal:
		case !w.Occupies():
			if w.State == model.WorkerLost && w.Cleared != (model.Interned{}) && w.Cleared == model.Intern(request.RequestID) {
				answer.Count++
			}
		case !c.stopOverdue(p.t, &w):
			err := fault.BadField(fault.ReasonNotQuarantined, fmt.Sprintf("workers[%d]", i),
				"%s is %s on %s and its stop is not overdue; cancel it or drain the executor, and wait",
				request.Workers[i].Worker, w.State, request.Executor)
			err.Kind = fault.Precondition
			return Cleared{}, err
		default:
			exited = append(exited, p)
		}
	}
	for _, p := range exited {
		w := c.read(p.t, p.at)
		w.Cleared, w.Unconfirmed = model.Intern(request.RequestID), false
		c.lose(p.t, p.at, w, fault.ReasonQuarantineCleared)
		if c.present(c.hosts[ordinal]) {
			c.stopOrphan(ordinal, p.t.instance(w.ID), model.Zombie)
		}
		answer.Count++
	}
	return answer, nil
}

// stopOverdue reports whether a worker is past the deadline of its stop.
func (c *Core) stopOverdue(t *task, w *model.TaskWorker) bool {
	e, _ := c.missed(c.now, t, w)
	return e != nil && e.Miss == FindingQuarantined
}

// position is the place of a worker in a task, or zero if the worker does not exist.
type position struct {
	t  *task
	at slot
}

// locate returns the positions of workers, in one pass over the tasks. It omits workers of
// quarantined records.
func (c *Core) locate(workers []Assigned) []position {
	byEpoch := map[int64][]int{}
	for i, w := range workers {
		byEpoch[w.Epoch] = append(byEpoch[w.Epoch], i)
	}
	found := make([]position, len(workers))
	for _, t := range c.tasks {
		if !t.active() || c.quarantined.uids[t.uid] {
			continue
		}
		for _, i := range byEpoch[t.header.Epoch] {
			at, there := t.find(workers[i].Worker.ID)
			if there && t.worker(workers[i].Worker.ID) == workers[i].Worker {
				found[i] = position{t, at}
			}
		}
	}
	return found
}
