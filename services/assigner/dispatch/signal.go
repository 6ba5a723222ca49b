package dispatch

import (
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// SignalTarget is a worker that gets a signal, or does not for a reason.
type SignalTarget struct {
	// Request is the request to the agent of the worker's executor. If Err is set, only its
	// worker, and the executor if there is one, are set.
	Request
	Err error
}

// Signal returns the RUNNING workers of a stage that a request for a signal names, in order of
// worker ID; all of them if it names none. A named worker with the number 0 is the newest RUNNING one
// of its index.
func (c *Core) Signal(job, stage string, named []model.WorkerID) (targets []SignalTarget) {
	wanted := map[model.WorkerID]SignalTarget{}
	for _, id := range named {
		wanted[id] = SignalTarget{Request: Request{Worker: model.Worker{Job: job, Stage: stage, ID: id}},
			Err: fault.New(fault.NotFound, fault.ReasonNotFound, "no such worker of %s/%s is RUNNING", job, stage)}
	}
	add := func(id model.WorkerID, target SignalTarget) {
		before, found := wanted[id]
		newer := before.Epoch == 0 || target.Worker.ID.Compare(before.Worker.ID) > 0
		if len(named) == 0 || found && newer {
			wanted[id] = target
		}
	}
	for _, t := range c.tasks {
		if key := t.header.Key; !t.active() || key.Job != job || key.Stage != stage {
			continue
		}
		for _, chunk := range t.chunks {
			for i := range size(chunk) {
				if w := &chunk.Workers[i]; w.State == model.WorkerRunning {
					target := c.signalTarget(t, w)
					add(w.ID, target)
					if len(named) > 0 {
						add(model.WorkerID{Index: w.ID.Index}, target)
					}
				}
			}
		}
	}
	targets = slices.SortedFunc(maps.Values(wanted),
		func(a, b SignalTarget) int { return a.Worker.ID.Compare(b.Worker.ID) })
	return slices.CompactFunc(targets, func(a, b SignalTarget) bool { return a.Worker == b.Worker })
}

func (c *Core) signalTarget(t *task, w *model.TaskWorker) SignalTarget {
	h, key := c.hosts[w.Ordinal], t.header.Key
	target := SignalTarget{Request: Request{Term: c.term, Executor: c.executorID(w.Ordinal), UID: t.uid,
		Epoch: t.header.Epoch, Worker: model.Worker{Job: key.Job, Stage: key.Stage, ID: w.ID}}}
	if h == nil || !c.present(h) || h.lost() {
		target.Err = fault.New(fault.Unavailable, fault.ReasonExecutorUnreachable, "the executor %s is not connected",
			target.Executor)
		return target
	}
	target.Address, target.Incarnation, target.Nonce = h.record.Address, h.record.Incarnation, Nonce(h.record.Nonce)
	return target
}
