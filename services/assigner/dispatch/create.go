package dispatch

import (
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// asked is a Create that was not answered durably yet: it waits for the view,
// or for its effects to be committed.
type asked struct {
	token   uint64
	request model.Dispatch
	until   time.Time
	// answered says that the reply was made; it goes out once effect `after` is
	// durable.
	answered bool
	after    int
}

// ask takes a request in. One that was abandoned is given again: it is here
// still.
func (c *Core) ask(token uint64, request model.Dispatch) {
	for _, a := range c.asked {
		if a.token == token {
			return
		}
	}
	c.asked = append(c.asked, &asked{token: token, request: request, until: c.now.Add(c.cfg.CreateWait)})
}

// create answers whatever the view has reached.
func (c *Core) create() {
	for _, a := range c.asked {
		if a.answered {
			continue
		}
		outcomes, err := c.dispatch(a.request)
		if outcomes == nil && err == nil {
			if c.now.Before(a.until) {
				continue
			}
			err = fault.New(fault.Unavailable, fault.ReasonUnavailable, "the view has not reached what was asked within %v", c.cfg.CreateWait)
		}
		if err != nil {
			c.reply(a.token, nil, err)
		} else {
			c.reply(a.token, outcomes, nil)
		}
		a.answered, a.after = true, c.emitted
	}
	c.forgetAnswered()
}

// forgetAnswered drops the requests whose replies wait for nothing any more.
func (c *Core) forgetAnswered() {
	c.asked = slices.DeleteFunc(c.asked, func(a *asked) bool { return a.answered && a.after <= c.durable })
}

// dispatch creates the tasks that can be. It answers nothing while one of them
// is still to be seen.
func (c *Core) dispatch(request model.Dispatch) ([]model.DispatchOutcome, error) {
	switch {
	case request.Term == c.registryTerm && request.Term > 0:
	case request.Term > c.revision:
		return nil, nil
	default:
		// Its compare would fail for ever.
		return nil, fault.New(fault.Precondition, fault.ReasonLowerTerm, "term %d is not the registry's, %d is", request.Term, c.registryTerm)
	}
	outcomes := make([]model.DispatchOutcome, 0, len(request.Tasks))
	waiting := false
	for _, asked := range request.Tasks {
		c.about(asked.UID)
		taken, reason, known := c.take(request.Term, asked)
		waiting = waiting || !known
		outcomes = append(outcomes, model.DispatchOutcome{UID: asked.UID, Taken: taken, Reason: reason})
	}
	c.aboutNone()
	if waiting {
		return nil, nil
	}
	return outcomes, nil
}

// take decides one dispatch. It is not known while the view is behind what it
// was decided on.
func (c *Core) take(term int64, asked model.DispatchTask) (taken bool, reason fault.Reason, known bool) {
	if t := c.tasks[asked.UID]; t != nil && t.active() && t.header.Key == asked.Key {
		return true, "", true
	}
	if c.aside.uids[asked.UID] {
		return false, fault.ReasonPoison, true
	}
	r, l := c.reservations[asked.UID], c.leases[asked.UID]
	if r.mod != asked.Mod || l.create != asked.Lease || !l.whole() {
		behind := max(asked.Mod, asked.Lease) > c.revision
		return false, fault.ReasonStale, !behind || r.mod > asked.Mod || l.create > asked.Lease
	}
	if r.Key != asked.Key || r.State != model.Queued {
		return false, fault.ReasonStale, true
	}
	c.put(r, l, model.Expect{Ref: model.LeaderRef(model.ServiceRegistry), Create: term})
	return true, "", true
}

// put makes what is missing of a task: the chunks, and the header that is
// complete with the last of them. Only a small task is one effect.
func (c *Core) put(r reservation, l lease, also ...model.Expect) {
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
	chunks := make([]model.Record, 0, header.Chunks)
	n := int32(0)
	for part := range slices.Chunk(workers, model.TaskChunkSize) {
		chunk := &model.TaskChunk{UID: r.UID, Chunk: n, Workers: make([]model.TaskWorker, len(part))}
		for i, p := range part {
			chunk.Workers[i] = model.TaskWorker{ID: p.Worker, Ordinal: p.Ordinal, State: model.WorkerAssigned, Since: c.now}
			name(&event, c.tell(&chunk.Workers[i]))
		}
		if t := c.tasks[r.UID]; t == nil || t.chunk(n) == nil {
			chunks = append(chunks, chunk)
		}
		n++
	}
	for len(chunks) > maxPuts-1 {
		incomplete := header
		c.decide(model.Effect{Puts: append([]model.Record{&incomplete}, chunks[:maxPuts-1]...), Expect: expect})
		chunks = chunks[maxPuts-1:]
	}
	header.Complete = true
	c.decide(model.Effect{
		Puts: append([]model.Record{&header}, chunks...), Expect: expect, Events: []model.JobEvent{event},
	})
	for i := range workers {
		c.orders[orderKey{workers[i].Ordinal, r.UID, workers[i].Worker}].doubt = false
	}
}
