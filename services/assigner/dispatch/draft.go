package dispatch

import (
	"maps"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// draft is what one decision changes of one task: a copy of each chunk, made
// once, and what the job is told. Memory moves when it is flushed.
type draft struct {
	t      *task
	chunks map[int32]*model.TaskChunk
	told   map[int32][]told
	// ended counts the workers that end.
	ended    int
	stopping bool
	// broken are the workers for which a batch that is to start together
	// cannot; withdrawn says that it does not, and message why.
	broken    []slot
	withdrawn bool
	message   string
	// observed is what there is to count; placed are the workers that are no
	// longer waiting for their executor, one of which acknowledged at least.
	observed     []observed
	placed       int
	acknowledged bool
}

// told is one worker's part in an event, and when it took the state it leaves.
type told struct {
	kind   model.EventKind
	worker model.EventWorker
	since  time.Time
}

// kinds tells which event a state is told by. EVICTING is none: the job was
// told when the stop was decided.
var kinds = map[model.WorkerState]model.EventKind{
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
		d = &draft{t: t, chunks: map[int32]*model.TaskChunk{}, told: map[int32][]told{}}
		c.drafts[t.uid] = d
	}
	return d
}

// read answers a worker as this step has it so far.
func (c *Core) read(t *task, at slot) model.TaskWorker {
	if d := c.drafts[t.uid]; d != nil && d.chunks[at.chunk] != nil {
		return d.chunks[at.chunk].Workers[at.i]
	}
	return t.chunks[at.chunk].Workers[at.i]
}

// write drafts a worker. A state moves along the edges of the model alone;
// anything else is a defect of this package.
func (c *Core) write(t *task, at slot, next model.TaskWorker) {
	was := c.read(t, at)
	d := c.draft(t)
	chunk := d.chunks[at.chunk]
	if chunk == nil {
		clone := *t.chunks[at.chunk]
		clone.Workers = slices.Clone(clone.Workers)
		chunk = &clone
		d.chunks[at.chunk] = chunk
	}
	if was.State != next.State {
		if !was.State.MayBecome(next.State) {
			panic("dispatch: " + t.worker(was.ID).String() + ": " + was.State.String() + " may not become " + next.State.String())
		}
		next.Since = c.now
		d.observe(c, &was, &next)
		if next.State.Terminal() {
			d.ended++
		}
		if breaks(was.State, &next) {
			d.broken = append(d.broken, at)
		}
		kind, ok := kinds[next.State]
		if next.Requeue {
			kind = model.EventWorkerRequeued
		}
		if ok {
			d.told[at.chunk] = append(d.told[at.chunk], told{kind, c.tell(&next), was.Since})
		}
	}
	chunk.Workers[at.i] = next
}

func (c *Core) tell(w *model.TaskWorker) model.EventWorker {
	e := model.EventWorker{
		ID: w.ID, Executor: c.executorID(w.Ordinal), State: w.State, Reason: w.Reason, ExitCode: w.ExitCode,
	}
	if w.State == model.WorkerFailed || w.State == model.WorkerLost {
		e.Message = w.LastError
	}
	return e
}

// flush decides every draft, in order of uid. A task's first effect says that
// it is stopping, its last one that it has ended: so a successor that finds
// some of them can go on.
func (c *Core) flush() {
	for _, uid := range slices.Sorted(maps.Keys(c.drafts)) {
		c.about(uid)
		c.flushDraft(c.drafts[uid])
		delete(c.drafts, uid)
	}
}

func (c *Core) flushDraft(d *draft) {
	r := c.reservations[d.t.uid]
	if len(d.broken) > 0 && !d.stopping && !d.t.header.Stopping && !r.ends() && d.t.together(r) {
		c.withdraw(d)
	}
	header := *d.t.header
	changed := d.stopping
	if d.stopping {
		header.Stopping = true
	}
	if d.withdrawn {
		header.Withdrawn, header.Reason, header.Message = true, fault.ReasonNotTogether, d.message
	}
	if d.acknowledged && d.placed == d.t.counts[model.WorkerAssigned] && !header.Stopping {
		d.observed = append(d.observed, observed{what: sawBatchAssigned, took: c.sinceGrant(d.t)})
	}
	last := d.ended > 0 && d.ended == d.t.unended()
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
		}
		numbers = numbers[n:]
		if len(effect.Puts) > 0 {
			c.decide(c.withEvents(d, effect))
		}
	}
	if len(d.observed) > 0 {
		c.pending = append(c.pending, pending{d.observed, c.emitted})
	}
}

// withEvents tells of the workers whose chunks the effect puts: one event for
// each kind and reason.
func (c *Core) withEvents(d *draft, effect model.Effect) model.Effect {
	type group struct {
		kind   model.EventKind
		reason fault.Reason
	}
	at := map[group]int{}
	for _, put := range effect.Puts {
		chunk, ok := put.(*model.TaskChunk)
		if !ok {
			continue
		}
		for _, one := range d.told[chunk.Chunk] {
			g := group{one.kind, one.worker.Reason}
			i, found := at[g]
			if !found {
				i = len(effect.Events)
				at[g] = i
				effect.Events = append(effect.Events, model.JobEvent{
					Kind: g.kind, Time: c.now, Key: d.t.header.Key, UID: d.t.uid, Reason: g.reason,
					Trace: d.t.header.Trace, Since: one.since, Epoch: d.t.header.Epoch,
					Workers: make([]model.EventWorker, 0, len(d.told[chunk.Chunk])),
				})
			}
			event := &effect.Events[i]
			if one.since.Before(event.Since) {
				event.Since = one.since
			}
			name(event, one.worker)
		}
	}
	return effect
}

// name adds a worker to an event. One that would name too many names none.
func name(e *model.JobEvent, w model.EventWorker) {
	e.Count++
	if e.Count <= model.MaxEventWorkers {
		e.Workers = append(e.Workers, w)
	} else {
		e.Workers = nil
	}
}
