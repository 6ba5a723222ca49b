package dispatch

import (
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// draft has the changes of one task by one decision: a copy of each changed chunk, and the
// job events. The records in memory change when the draft is flushed.
type draft struct {
	t      *task
	chunks map[int32]*model.TaskChunk
	events map[int32][]workerEvent // by chunk
	// ended counts the workers that end.
	ended    int
	stopping bool
	// broken are the workers because of which a gang cannot start together. If the gang
	// is withdrawn, reason and message say why.
	// restarted are those with which a gang restarts.
	broken    []slot
	restarted []slot
	withdrawn bool
	reason    fault.Reason
	message   string
	// placed counts the workers that leave ASSIGNED. acknowledged is true if an executor
	// has acknowledged at least one of them.
	placed       int
	acknowledged bool
	observations []func(*Metrics)
}

// workerEvent is one worker's part in a job event. since is the time at which the worker
// entered the state that it leaves now.
type workerEvent struct {
	kind   model.EventKind
	worker model.EventWorker
	since  model.Instant
}

// eventKinds has the event that reports each state. EVICTING has no event, because the
// event of EVICT reports the stop.
var eventKinds = map[model.WorkerState]model.EventKind{
	model.WorkerAssigned:  model.EventWorkerAssigned,
	model.WorkerStarting:  model.EventWorkerStarted,
	model.WorkerRunning:   model.EventWorkerRunning,
	model.WorkerEvict:     model.EventWorkerEvicting,
	model.WorkerCompleted: model.EventWorkerCompleted,
	model.WorkerFailed:    model.EventWorkerFailed,
	model.WorkerLost:      model.EventWorkerLost,
	model.WorkerEvicted:   model.EventWorkerEvicted,
}

func (c *Core) draft(t *task) *draft {
	d := c.drafts[t.uid]
	if d == nil {
		d = &draft{t: t, chunks: map[int32]*model.TaskChunk{}, events: map[int32][]workerEvent{}}
		c.drafts[t.uid] = d
	}
	return d
}

// read returns a worker with the changes that this step has drafted so far.
func (c *Core) read(t *task, at slot) model.TaskWorker {
	if d := c.drafts[t.uid]; d != nil && d.chunks[at.chunk] != nil {
		return d.chunks[at.chunk].Workers[at.i]
	}
	return t.chunks[at.chunk].Workers[at.i]
}

// write drafts a worker. It panics if the model has no such state transition.
func (c *Core) write(t *task, at slot, next model.TaskWorker) { c.writeSince(t, at, next, c.now) }

// writeSince drafts a worker that has been in its state since a time, if that is another one.
func (c *Core) writeSince(t *task, at slot, next model.TaskWorker, since time.Time) {
	was := c.read(t, at)
	d := c.draft(t)
	if was.State != next.State {
		if !was.State.MayBecome(next.State) {
			panic("dispatch: " + t.worker(was.ID).String() + ": " + was.State.String() + " may not become " +
				next.State.String())
		}
		next.Since = model.InstantOf(since)
		if next.State == model.WorkerRunning && c.spec(t.uid).TracksRunning() {
			next.RunningSince = next.Since
		}
		if next.State.Terminal() {
			c.requeue(t, &was, &next)
			if parent, at, worker, changed := c.laterWorker(t, &next); changed {
				c.write(parent, at, worker)
			}
		}
		c.transition(d, at, &was, &next)
	}
	if d.chunks[at.chunk] == nil {
		clone := *t.chunks[at.chunk]
		clone.Workers = slices.Clone(clone.Workers)
		d.chunks[at.chunk] = &clone
	}
	d.chunks[at.chunk].Workers[at.i] = next
}

// transition drafts the consequences of a new state of a worker: metrics, the withdrawal
// of its gang, and the job event.
func (c *Core) transition(d *draft, at slot, was, next *model.TaskWorker) {
	c.observe(d, was, next)
	if next.State.Terminal() {
		d.ended++
	}
	switch wanted := next.State.Terminal() && c.wantsRequeue(d.t, was, next); {
	case wanted && restartsGang(c.reservations[d.t.uid], next):
		if next.Reason != fault.ReasonRoundsExhausted {
			d.restarted = append(d.restarted, at)
		}
	case c.movesGang(d.t, was, next):
		d.restarted = append(d.restarted, at)
	case wanted, breaksGang(was.State, next):
		d.broken = append(d.broken, at)
	}
	kind, ok := eventKinds[next.State]
	if next.Requeue {
		kind = model.EventWorkerRequeued
	}
	if ok {
		d.events[at.chunk] = append(d.events[at.chunk], workerEvent{kind, c.eventWorker(next), was.Since})
	}
}

func (c *Core) eventWorker(w *model.TaskWorker) model.EventWorker {
	e := model.EventWorker{
		ID: w.ID, Executor: c.executorID(w.Ordinal), State: w.State, Reason: w.Reason, ExitCode: w.ExitCode,
	}
	if w.State == model.WorkerFailed || w.State == model.WorkerLost {
		e.Message = w.LastError.String()
	}
	return e
}

// flush decides every draft, in order of uid.
func (c *Core) flush() {
	for _, uid := range slices.Sorted(maps.Keys(c.drafts)) {
		c.setSubject(uid)
		c.flushDraft(c.drafts[uid])
		delete(c.drafts, uid)
	}
}

// flushDraft decides a draft, in several effects if it is large. The first effect marks
// the task as stopping, and the last effect marks it as ended. If only some of the effects
// become durable, a successor can therefore continue.
func (c *Core) flushDraft(d *draft) {
	r := c.reservations[d.t.uid]
	switch {
	case len(d.broken)+len(d.restarted) == 0, d.stopping, d.t.header.Stopping, r.ends():
	case len(d.restarted) > 0:
		c.withdraw(d, fault.ReasonGangRestarted, c.withdrawalMessage(d, d.restarted))
	case d.t.startsTogether(r):
		c.withdraw(d, fault.ReasonNotTogether, c.withdrawalMessage(d, d.broken))
	}
	header, changed := d.header()
	if d.acknowledged && d.placed == d.t.counts[model.WorkerAssigned] && !header.Stopping {
		took := c.sinceGrant(d.t)
		d.count(func(m *Metrics) { m.AssignBatch.Observe(took) })
	}
	last := d.ended > 0 && d.ended == d.t.live()
	numbers := slices.Sorted(maps.Keys(d.chunks))
	for first := true; first || len(numbers) > 0; first = false {
		n := min(len(numbers), maxPuts-1)
		if last && n == len(numbers) {
			header.Ended, changed = true, true
		}
		var effect model.Effect
		if changed {
			put := header
			effect.Puts, changed = append(effect.Puts, &put), false
		}
		for _, number := range numbers[:n] {
			effect.Puts = append(effect.Puts, d.chunks[number])
			c.addEvents(&effect, d, number)
		}
		numbers = numbers[n:]
		if len(effect.Puts) > 0 {
			c.decide(effect)
		}
	}
	c.observeDurable(d.observations)
}

// header returns the task's header after the draft, and whether the draft changes it.
func (d *draft) header() (header model.TaskHeader, changed bool) {
	header = *d.t.header
	if d.stopping {
		header.Stopping = true
	}
	if d.withdrawn {
		header.Withdrawn, header.Reason, header.Message = true, d.reason, d.message
	}
	return header, d.stopping
}

// addEvents adds the job events of one chunk to an effect. An effect has one event for each
// kind and reason.
func (c *Core) addEvents(effect *model.Effect, d *draft, chunk int32) {
	for _, one := range d.events[chunk] {
		i := 0
		for i < len(effect.Events) && (effect.Events[i].Kind != one.kind || effect.Events[i].Reason != one.worker.Reason) {
			i++
		}
		if i == len(effect.Events) {
			effect.Events = append(effect.Events, model.JobEvent{
				Kind: one.kind, Time: c.now, Key: d.t.header.Key, UID: d.t.uid, Reason: one.worker.Reason,
				Trace: d.t.header.Trace, Since: one.since.Time(), Epoch: d.t.header.Epoch,
				Workers: make([]model.EventWorker, 0, len(d.events[chunk])),
			})
		}
		event := &effect.Events[i]
		if since := one.since.Time(); since.Before(event.Since) {
			event.Since = since
		}
		addWorker(event, one.worker)
	}
}

// addWorker adds a worker to an event. An event with more than MaxEventWorkers workers
// counts them and names none.
func addWorker(e *model.JobEvent, w model.EventWorker) {
	e.Count++
	if e.Count <= model.MaxEventWorkers {
		e.Workers = append(e.Workers, w)
	} else {
		e.Workers = nil
	}
}
