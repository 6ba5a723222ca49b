package dispatch

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Output returns the request to the agent that has the output of a worker. The number 0
// selects the newest worker of the index, and the epoch 0 every epoch. If executor is set,
// the worker need not have a record.
func (c *Core) Output(worker model.Worker, epoch int64, executor string) (Request, error) {
	if executor == "" {
		var found bool
		if executor, worker.ID.Number, epoch, found = c.placeOf(worker, epoch); !found || executor == "" {
			return Request{}, fault.New(fault.NotFound, fault.ReasonNotFound,
				"%s/%s has no worker %d with an assignment on an executor", worker.Job, worker.Stage, worker.ID.Index)
		}
	}
	ordinal, known := c.ordinals[executor]
	if !known {
		return Request{}, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %q", executor).
			With("executor", executor)
	}
	h := c.hosts[ordinal]
	if !c.present(h) || h.lost() {
		return Request{}, fault.New(fault.Unavailable, fault.ReasonExecutorUnreachable,
			"the executor %s is not connected", executor)
	}
	return Request{Executor: executor, Address: h.record.Address, Incarnation: h.record.Incarnation,
		Nonce: Nonce(h.record.Nonce), Worker: worker, Epoch: epoch}, nil
}

// placeOf returns the executor, the number and the epoch of the newest worker that matches.
// The executor is empty if its record was deleted.
func (c *Core) placeOf(want model.Worker, wantEpoch int64) (executor string, number int32, epoch int64, found bool) {
	for _, t := range c.tasks {
		if !t.active() || t.header.Key.Job != want.Job || t.header.Key.Stage != want.Stage ||
			wantEpoch != 0 && t.header.Epoch != wantEpoch {
			continue
		}
		for _, chunk := range t.chunks {
			n := size(chunk)
			if n == 0 || chunk.Workers[n-1].ID.Index < want.ID.Index || chunk.Workers[0].ID.Index > want.ID.Index {
				continue
			}
			for i := range n {
				w := &chunk.Workers[i]
				if w.ID.Index != want.ID.Index || want.ID.Number != 0 && w.ID.Number != want.ID.Number {
					continue
				}
				if !found || w.ID.Number > number || w.ID.Number == number && t.header.Epoch > epoch {
					executor, number, epoch, found = c.executorID(w.Ordinal), w.ID.Number, t.header.Epoch, true
				}
			}
		}
	}
	return executor, number, epoch, found
}
