package dispatch

import (
	"slices"

	"berth.dev/pkg/model"
)

// change is a record before an effect; before is nil if the record did not exist.
type change struct {
	ref    model.Ref
	before model.Record
}

// set is the only function that changes records in memory, and it updates every index. The
// view, decisions and the undoing of decisions all use it.
func (c *Core) set(ref model.Ref, record model.Record, create, mod int64) {
	switch ref.Kind {
	case model.KindReservation:
		c.setReservation(ref, as[model.Reservation](record), mod)
	case model.KindLeaseChunk:
		c.setLeaseChunk(ref, as[model.LeaseChunk](record), create)
	case model.KindVolumeChunk:
		c.setVolumeChunk(ref, as[model.VolumeChunk](record))
	case model.KindExecutor:
		c.setExecutor(ref.ID, as[model.Executor](record))
	case model.KindLive:
		c.setLive(ref.ID, record != nil)
	case model.KindReady:
		c.setReady(as[model.Ready](record))
	case model.KindRefusal:
		c.setRefusal(ref.ID, as[model.Refusal](record))
	case model.KindTaskHeader:
		c.setHeader(ref.ID, as[model.TaskHeader](record))
	case model.KindTaskChunk:
		c.setChunk(ref.ID, ref.Chunk, as[model.TaskChunk](record))
	}
}

// as returns a record as its type R, or nil for a deleted record.
func as[R any](record model.Record) *R {
	r, _ := any(record).(*R)
	return r
}

// own returns a record of this service from memory, or nil.
func (c *Core) own(ref model.Ref) model.Record {
	if m := c.refusals[ref.ID]; ref.Kind == model.KindRefusal && m != nil {
		return m
	}
	t := c.tasks[ref.ID]
	if t == nil {
		return nil
	}
	switch ref.Kind {
	case model.KindTaskHeader:
		if t.header != nil {
			return t.header
		}
	case model.KindTaskChunk:
		if chunk := t.chunk(ref.Chunk); chunk != nil {
			return chunk
		}
	}
	return nil
}

// decide makes an effect. The records in memory change at once; the journal keeps the
// earlier records.
func (c *Core) decide(e model.Effect) {
	c.journal.Begin()
	for _, record := range e.Puts {
		c.replace(record.Ref(), record)
	}
	for _, ref := range e.Deletes {
		c.replace(ref, nil)
	}
	c.out = append(c.out, e)
}

func (c *Core) replace(ref model.Ref, record model.Record) {
	c.journal.Add(change{ref, c.own(ref)})
	c.set(ref, record, 0, 0)
}

// undo sets the earlier record of a change that was abandoned.
func (c *Core) undo(ch change) { c.set(ch.ref, ch.before, 0, 0) }

func (c *Core) setHeader(uid string, header *model.TaskHeader) {
	t := c.task(uid)
	old := t.header
	if was := t.active(); was != (header != nil && header.Complete) {
		if was {
			c.tallyAll(t, -1)
		}
		t.header = header
		c.tallyAll(t, +1)
		c.placementsChanged(t)
	}
	t.header = header
	if old == nil || header == nil || old.Complete != header.Complete || old.Stopping != header.Stopping {
		c.updateRequests(t)
	}
	if old != nil && header != nil && old.Withdrawn != header.Withdrawn {
		c.placementsChanged(t)
	}
	if header != nil && header.Restarts() && (old == nil || !old.Withdrawn) {
		c.markGang(t)
	}
	c.forget(t)
	c.markTask(uid)
}

func (c *Core) setChunk(uid string, n int32, chunk *model.TaskChunk) {
	t := c.task(uid)
	if int(n) >= len(t.chunks) {
		t.chunks = append(t.chunks, make([]*model.TaskChunk, int(n)+1-len(t.chunks))...)
	}
	old := t.chunks[n]
	t.chunks[n] = chunk
	moved := false
	for i := range max(size(old), size(chunk)) {
		var was, is *model.TaskWorker
		if i < size(old) {
			was = &old.Workers[i]
		}
		if i < size(chunk) {
			is = &chunk.Workers[i]
		}
		c.setWorker(t, was, is)
		moved = moved || was == nil || is == nil || changesMembers(was, is)
	}
	if moved && t.active() {
		c.placementsChanged(t)
	}
	for len(t.chunks) > 0 && t.chunks[len(t.chunks)-1] == nil {
		t.chunks = t.chunks[:len(t.chunks)-1]
	}
	c.forget(t)
	c.markTask(uid)
}

// changesMembers reports whether a change of a worker may change the members of its gang.
func changesMembers(was, is *model.TaskWorker) bool {
	return was.ID != is.ID || was.Ordinal != is.Ordinal || was.Requeue != is.Requeue || was.Host != is.Host ||
		was.Later != is.Later || was.State.Terminal() != is.State.Terminal() ||
		// In a cell; see versionWorker.
		is.Host == (model.Interned{}) && was.State < model.WorkerRunning && is.State >= model.WorkerRunning
}

func size(chunk *model.TaskChunk) int {
	if chunk == nil {
		return 0
	}
	return len(chunk.Workers)
}

// setWorker updates the indexes for one worker. was is nil for a new worker, and is is nil
// for a deleted worker.
func (c *Core) setWorker(t *task, was, is *model.TaskWorker) {
	if was != nil && is != nil && was.ID == is.ID && was.Ordinal == is.Ordinal && was.State == is.State &&
		was.Unconfirmed == is.Unconfirmed {
		return
	}
	if was != nil {
		c.tally(t, was, -1)
		if was.State == model.WorkerStarting {
			delete(c.starts, workerKey{was.Ordinal, t.uid, was.ID})
		}
		if is == nil || was.ID != is.ID || was.Ordinal != is.Ordinal {
			c.dropRequest(workerKey{was.Ordinal, t.uid, was.ID})
		}
	}
	if is != nil {
		c.tally(t, is, +1)
		c.updateRequest(t, is)
	}
}

func (c *Core) tallyAll(t *task, by int) {
	for _, chunk := range t.chunks {
		for i := range size(chunk) {
			c.tally(t, &chunk.Workers[i], by)
		}
	}
}

// tally adds a worker to the counts of its task and to its executor if by is +1, and
// removes the worker from both if by is -1.
func (c *Core) tally(t *task, w *model.TaskWorker, by int) {
	if !t.active() {
		return
	}
	t.counts[w.State] += by
	if t.leaves(w) {
		t.leaving += by
	}
	if w.Unconfirmed {
		t.unconfirmed += by
	}
	c.tallyLifetime(t, w, by)
	if !w.Occupies() {
		return
	}
	h, p := c.host(w.Ordinal), placed{t.uid, w.ID}
	at, found := slices.BinarySearchFunc(h.placed, p, placed.compare)
	switch {
	case by > 0 && !found:
		h.placed = slices.Insert(h.placed, at, p)
		if c.clears(h) {
			c.markHost(w.Ordinal)
		}
	case by < 0 && found:
		h.placed = slices.Delete(h.placed, at, at+1)
	}
}

func (c *Core) task(uid string) *task {
	t := c.tasks[uid]
	if t == nil {
		t = &task{uid: uid}
		c.follow(t)
		c.tasks[uid] = t
		c.uids.Insert(uid)
	}
	return t
}

// forget removes a task without records.
func (c *Core) forget(t *task) {
	if t.header != nil || len(t.chunks) > 0 {
		return
	}
	delete(c.tasks, t.uid)
	c.uids.Remove(t.uid)
}
