package dispatch

import (
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// pendingDispatch is a dispatch whose outcome is not durable yet. It waits for the view,
// or for its effects to become durable.
type pendingDispatch struct {
	token   uint64
	request model.Dispatch
	until   time.Time
	// answered is true when the reply is among the actions. The reply becomes visible
	// after the effects before it.
	answered bool
}

// addDispatch accepts a dispatch. After an abandoned round, the loop gives the core the
// same input again; the core still has its dispatch and ignores the repeat.
func (c *Core) addDispatch(token uint64, request model.Dispatch) {
	if slices.ContainsFunc(c.dispatches, func(d *pendingDispatch) bool { return d.token == token }) {
		return
	}
	c.dispatches = append(c.dispatches, &pendingDispatch{token: token, request: request, until: c.now.Add(dispatchWait)})
}

// answerDispatches answers each dispatch whose records the view has reached, and each
// dispatch that has waited for the view for too long.
func (c *Core) answerDispatches() {
	for _, d := range slices.Clone(c.dispatches) {
		if d.answered {
			continue
		}
		outcomes, err := c.dispatch(d.request)
		if outcomes == nil && err == nil {
			if c.now.Before(d.until) {
				continue
			}
			err = fault.New(fault.Unavailable, fault.ReasonUnavailable,
				"the view did not reach the dispatched leases within %v", dispatchWait)
		}
		c.respond(d.token, outcomes, err)
		d.answered = true
		c.journal.Outcome(func(durable bool) {
			d.answered = durable
			if durable {
				c.dispatches = slices.DeleteFunc(c.dispatches, func(o *pendingDispatch) bool { return o == d })
			}
		})
	}
}

// dispatch creates the tasks of a request, except the tasks that it refuses. It returns
// nil and no error while the view has not reached the records of one of the tasks.
func (c *Core) dispatch(request model.Dispatch) ([]model.DispatchOutcome, error) {
	switch {
	case request.Term == c.registryTerm && request.Term > 0:
	case request.Term > c.revision:
		return nil, nil
	default:
		// The compare of a task with this term would fail forever.
		return nil, fault.New(fault.Precondition, fault.ReasonLowerTerm,
			"the request has term %d, but the registry's leader has term %d", request.Term, c.registryTerm)
	}
	outcomes := make([]model.DispatchOutcome, 0, len(request.Tasks))
	reached := true
	for _, task := range request.Tasks {
		c.setSubject(task.UID)
		refusal, known := c.accept(request.Term, task)
		reached = reached && known
		outcomes = append(outcomes, model.DispatchOutcome{UID: task.UID, Accepted: refusal == "", Reason: refusal})
	}
	c.clearSubject()
	if !reached {
		return nil, nil
	}
	return outcomes, nil
}

// accept creates the task of one lease, or returns the reason why it refuses the lease.
// The outcome is not known while the view is behind the records that the registry decided
// on.
func (c *Core) accept(term int64, d model.DispatchTask) (refusal fault.Reason, known bool) {
	if t := c.tasks[d.UID]; t != nil && t.active() && t.header.Key == d.Key {
		return "", true
	}
	if c.quarantined.uids[d.UID] {
		return fault.ReasonPoison, true
	}
	r, l := c.reservations[d.UID], c.leases[d.UID]
	if r.mod != d.Mod || l.create != d.Lease || !l.whole() {
		behind := max(d.Mod, d.Lease) > c.revision
		return fault.ReasonStale, !behind || r.mod > d.Mod || l.create > d.Lease
	}
	if r.Key != d.Key || r.State != model.Queued {
		return fault.ReasonStale, true
	}
	c.createTask(r, l, model.Expect{Ref: model.LeaderRef(model.ServiceRegistry), Create: term})
	return "", true
}

// createTask creates the missing chunks of a task and its header. A large task takes
// several effects, and only the last of them marks the header as complete.
func (c *Core) createTask(r reservation, l lease, also ...model.Expect) {
	expect := append([]model.Expect{
		{Ref: r.Ref(), Mod: r.mod},
		{Ref: l.chunks[0].Ref(), Create: l.create},
	}, also...)
	workers := l.placements()
	header := model.TaskHeader{
		UID: r.UID, Key: r.Key, Epoch: l.chunks[0].Epoch, Lease: l.create, CreatedAt: c.now, Trace: r.Trace,
		Workers: int32(len(workers)), Chunks: int32((len(workers) + model.TaskChunkSize - 1) / model.TaskChunkSize),
	}
	event := model.JobEvent{
		Kind: model.EventWorkerAssigned, Time: c.now, Key: r.Key, UID: r.UID,
		Trace: r.Trace, Since: l.chunks[0].GrantedAt, Epoch: header.Epoch,
		Workers: make([]model.EventWorker, 0, min(len(workers), model.MaxEventWorkers)),
	}
	var missing []model.Record
	for n := range header.Chunks {
		chunk := c.newChunk(r.UID, n, workers)
		for i := range chunk.Workers {
			addWorker(&event, c.eventWorker(&chunk.Workers[i]))
		}
		if t := c.tasks[r.UID]; t == nil || t.chunk(n) == nil {
			missing = append(missing, chunk)
		}
	}
	for len(missing) > maxPuts-1 {
		incomplete := header
		c.decide(model.Effect{Puts: append([]model.Record{&incomplete}, missing[:maxPuts-1]...), Expect: expect})
		missing = missing[maxPuts-1:]
	}
	header.Complete = true
	c.decide(model.Effect{
		Puts: append([]model.Record{&header}, missing...), Expect: expect, Events: []model.JobEvent{event},
	})
	for i := range workers {
		c.requests[workerKey{workers[i].Ordinal, r.UID, workers[i].Worker}].maybeReached = false
	}
}

// newChunk returns the n-th chunk of the workers of a task.
func (c *Core) newChunk(uid string, n int32, workers []model.Placement) *model.TaskChunk {
	workers = workers[n*model.TaskChunkSize:]
	workers = workers[:min(len(workers), model.TaskChunkSize)]
	chunk := &model.TaskChunk{UID: uid, Chunk: n, Workers: make([]model.TaskWorker, len(workers))}
	for i, p := range workers {
		chunk.Workers[i] = model.TaskWorker{ID: p.Worker, Ordinal: p.Ordinal, State: model.WorkerAssigned,
			Since: model.InstantOf(c.now)}
	}
	return chunk
}
