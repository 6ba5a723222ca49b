package dispatch

import (
	"slices"

	"berth.dev/pkg/model"
)

// undo is what a record was before an effect that is not durable yet; nil where
// it was not there.
type undo struct {
	effect int
	ref    model.Ref
	record model.Record
}

// set is the one function that changes what the core knows, and keeps every
// index true to it: for the view, for decisions and for taking them back.
func (c *Core) set(ref model.Ref, record model.Record, create, mod int64) {
	switch ref.Kind {
	case model.KindReservation:
		r, _ := record.(*model.Reservation)
		c.setReservation(ref, r, mod)
	case model.KindLeaseChunk:
		chunk, _ := record.(*model.LeaseChunk)
		c.setLeaseChunk(ref, chunk, create)
	case model.KindExecutor:
		e, _ := record.(*model.Executor)
		c.setExecutor(ref.ID, e)
	case model.KindLive:
		c.setLive(ref.ID, record != nil)
	case model.KindReady:
		ready, _ := record.(*model.Ready)
		c.setReady(ready)
	case model.KindRefusal:
		m, _ := record.(*model.Refusal)
		c.setRefusal(ref.ID, m)
	case model.KindTaskHeader:
		header, _ := record.(*model.TaskHeader)
		c.setHeader(ref.ID, header)
	case model.KindTaskChunk:
		chunk, _ := record.(*model.TaskChunk)
		c.setChunk(ref.ID, ref.Chunk, chunk)
	}
}

// own answers this service's record as it is in memory, nil without one.
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

// decide makes one effect: memory moves at once, the journal keeps what was.
func (c *Core) decide(e model.Effect) {
	c.emitted++
	for _, record := range e.Puts {
		c.replace(record.Ref(), record)
	}
	for _, ref := range e.Deletes {
		c.replace(ref, nil)
	}
	c.out = append(c.out, e)
}

func (c *Core) replace(ref model.Ref, record model.Record) {
	c.journal = append(c.journal, undo{c.emitted, ref, c.own(ref)})
	c.set(ref, record, 0, 0)
}

// committed drops the journal of the effects that are durable, and what waited
// for them.
func (c *Core) committed(effects int) {
	c.durable += effects
	n := 0
	for n < len(c.journal) && c.journal[n].effect <= c.durable {
		n++
	}
	c.journal = slices.Delete(c.journal, 0, n)
	c.answers = slices.DeleteFunc(c.answers, func(a answer) bool { return a.after <= c.durable })
	c.forgetAnswered()
	c.settleFigures()
}

// abandoned takes back what is not durable: records in reverse order, then the
// replies and orders that were to follow them. What executors answered stands.
func (c *Core) abandoned() {
	for _, u := range slices.Backward(c.journal) {
		c.set(u.ref, u.record, 0, 0)
	}
	c.journal = nil
	for _, a := range c.asked {
		a.answered = a.answered && a.after <= c.durable
	}
	for _, a := range c.answers {
		c.redo = append(c.redo, a.event)
	}
	c.answers = nil
	c.pending = nil
	for _, f := range slices.Clone(c.flown) {
		if f.after > c.durable && !f.landed {
			c.unsend(f)
		}
	}
	c.emitted = c.durable
}

func (c *Core) setHeader(uid string, header *model.TaskHeader) {
	t := c.task(uid)
	old := t.header
	if was := t.active(); was != (header != nil && header.Complete) {
		if was {
			c.tallyAll(t, -1)
		}
		t.header = header
		c.tallyAll(t, +1)
	}
	t.header = header
	if old == nil || header == nil || old.Complete != header.Complete || old.Stopping != header.Stopping {
		c.refitAll(t)
	}
	c.forget(t)
	c.mark(uid)
}

func (c *Core) setChunk(uid string, n int32, chunk *model.TaskChunk) {
	t := c.task(uid)
	if int(n) >= len(t.chunks) {
		t.chunks = append(t.chunks, make([]*model.TaskChunk, int(n)+1-len(t.chunks))...)
	}
	old := t.chunks[n]
	t.chunks[n] = chunk
	for i := range max(size(old), size(chunk)) {
		var was, is *model.TaskWorker
		if i < size(old) {
			was = &old.Workers[i]
		}
		if i < size(chunk) {
			is = &chunk.Workers[i]
		}
		c.setWorker(t, was, is)
	}
	for len(t.chunks) > 0 && t.chunks[len(t.chunks)-1] == nil {
		t.chunks = t.chunks[:len(t.chunks)-1]
	}
	c.forget(t)
	c.mark(uid)
}

func size(chunk *model.TaskChunk) int {
	if chunk == nil {
		return 0
	}
	return len(chunk.Workers)
}

// setWorker moves one worker in the indexes. Both are nil where there is none.
func (c *Core) setWorker(t *task, was, is *model.TaskWorker) {
	if was != nil && is != nil && was.ID == is.ID && was.Ordinal == is.Ordinal && was.State == is.State {
		return
	}
	if was != nil {
		c.tally(t, was, -1)
		if is == nil || was.ID != is.ID || was.Ordinal != is.Ordinal {
			c.refit(t, was, false)
		}
	}
	if is != nil {
		c.tally(t, is, +1)
		c.refit(t, is, true)
	}
}

func (c *Core) tallyAll(t *task, by int) {
	for _, chunk := range t.chunks {
		for i := range size(chunk) {
			c.tally(t, &chunk.Workers[i], by)
		}
	}
}

// tally adds a worker to, or takes it from, the counts of its task and the
// workers of its executor.
func (c *Core) tally(t *task, w *model.TaskWorker, by int) {
	if !t.active() {
		return
	}
	t.counts[w.State] += by
	if t.leaves(w) {
		t.leaving += by
	}
	if w.State.Terminal() {
		return
	}
	h := c.host(w.Ordinal)
	at, found := slices.BinarySearchFunc(h.placed, placed{t.uid, w.ID}, placed.compare)
	switch {
	case by > 0 && !found:
		h.placed = slices.Insert(h.placed, at, placed{t.uid, w.ID})
		if h.lost() || h.record.Draining || c.refuses(h) {
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
		if r := c.reservations[uid]; r.Reservation != nil {
			t.unwanted = r.Unwanted
		}
		c.tasks[uid] = t
		at, _ := slices.BinarySearch(c.uids, uid)
		c.uids = slices.Insert(c.uids, at, uid)
	}
	return t
}

// forget drops a task of which no record is left.
func (c *Core) forget(t *task) {
	if t.header != nil || len(t.chunks) > 0 {
		return
	}
	delete(c.tasks, t.uid)
	if at, found := slices.BinarySearch(c.uids, t.uid); found {
		c.uids = slices.Delete(c.uids, at, at+1)
	}
}
