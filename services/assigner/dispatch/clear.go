package dispatch

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// clear takes an operator's word that quarantined workers are gone, as that of an
// executor that is LOST. Each is named with its epoch, so that a request that is
// sent again means the same workers and no others; and it is remembered with
// them, so that it answers the same.
//
// The word may be wrong. What an executor that is there still has is told to
// stop from then on as a stray; what one has that comes back is one by its first
// report.
func (c *Core) clear(request Clear) (Cleared, error) {
	ordinal, known := c.ordinals[request.Executor]
	if !known {
		return Cleared{}, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", request.Executor)
	}
	var answer Cleared
	var gone []position
	seen := map[position]bool{{}: true}
	for i, p := range c.locate(request.Workers) {
		if seen[p] {
			continue
		}
		seen[p] = true
		switch w := c.read(p.t, p.at); {
		case w.Ordinal != ordinal:
		case w.State.Terminal():
			if w.State == model.WorkerLost && w.Cleared != "" && w.Cleared == request.RequestID {
				answer.Count++
			}
		case !c.quarantined(p.t, &w):
			err := fault.BadField(fault.ReasonNotQuarantined, fmt.Sprintf("workers[%d]", i),
				"%s is %s on %s, and no stop of it is overdue: cancel it, or drain the executor, and wait", request.Workers[i].Worker, w.State, request.Executor)
			err.Kind = fault.Precondition
			return Cleared{}, err
		default:
			gone = append(gone, p)
		}
	}
	for _, p := range gone {
		w := c.read(p.t, p.at)
		w.Cleared = request.RequestID
		c.lose(p.t, p.at, w, fault.ReasonQuarantineCleared)
		if c.present(c.hosts[ordinal]) {
			c.stray(ordinal, p.t.instance(w.ID), model.Zombie)
		}
		answer.Count++
	}
	return answer, nil
}

// quarantined says whether a worker was to have ended by now, and its end is not
// confirmed.
func (c *Core) quarantined(t *task, w *model.TaskWorker) bool {
	e := c.missed(c.now, t, w)
	return e != nil && e.Miss == FindingQuarantined
}

// position is where a worker is kept; zero for one that is not.
type position struct {
	t  *task
	at slot
}

// locate finds workers by their names, in one look at the tasks.
func (c *Core) locate(workers []Assigned) []position {
	byEpoch := map[int64][]int{}
	for i, w := range workers {
		byEpoch[w.Epoch] = append(byEpoch[w.Epoch], i)
	}
	found := make([]position, len(workers))
	for _, t := range c.tasks {
		if !t.active() || c.aside.uids[t.uid] {
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
