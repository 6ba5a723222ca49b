package inventory

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/pkg/model"
)

// lease holds the chunks of one lease that still have a worker.
type lease struct {
	chunks map[int32]*entry
	// of is the key of its gang, in which next and prev link the leases.
	of         model.Key
	next, prev *lease
}

// create returns the create revision, which all chunks share; 0 while the lease is
// tentative.
func (l *lease) create() int64 {
	for _, chunk := range l.chunks {
		return chunk.create
	}
	return 0
}

// executor returns the ordinal of the executor of the first worker of a chunk. A lease on a cell has no
// other.
func (l *lease) executor() uint32 {
	for _, chunk := range l.chunks {
		return chunk.record.(*model.LeaseChunk).Workers[0].Ordinal
	}
	return 0
}

// key returns the key of the reservation, which all chunks share.
func (l *lease) key() (key model.Key) {
	for _, chunk := range l.chunks {
		return chunk.record.(*model.LeaseChunk).Key
	}
	return key
}

// inOrder returns the chunks in order of number.
func (l *lease) inOrder() []*model.LeaseChunk {
	chunks := make([]*model.LeaseChunk, 0, len(l.chunks))
	for _, number := range slices.Sorted(maps.Keys(l.chunks)) {
		chunks = append(chunks, l.chunks[number].record.(*model.LeaseChunk))
	}
	return chunks
}

// refs returns the references of the chunks in order of number.
func (l *lease) refs() []model.Ref {
	refs := make([]model.Ref, 0, len(l.chunks))
	for _, chunk := range l.inOrder() {
		refs = append(refs, chunk.Ref())
	}
	return refs
}

// task is what the assigner has stored for a UID.
type task struct {
	header *entry
	chunks map[int32]*entry
	// request is the digest of the request once it was needed; see requestOf.
	request string
	// givenUp has the workers that were given up although their executor may still start or run
	// them; nil without such workers.
	givenUp map[model.WorkerID]bool
}

func (c *Core) setTask(ref model.Ref, next *entry) {
	t := c.tasks[ref.ID]
	if t == nil {
		t = &task{chunks: map[int32]*entry{}}
		c.tasks[ref.ID] = t
	}
	if ref.Kind == model.KindTaskHeader {
		first := t.header == nil
		if t.header = next; first && next != nil {
			c.observeTask(ref.ID)
		}
	} else {
		prev := t.chunks[ref.Chunk]
		c.moveTasked(prev, next)
		c.observeSilence(ref.ID, prev, next)
		c.observeGivenUp(ref.ID, t, next)
		put(t.chunks, ref.Chunk, next)
		c.observeStarts(t, prev, next)
	}
	if c.term != 0 {
		c.isolate(ref.ID)
	}
	if t.header == nil && len(t.chunks) == 0 {
		delete(c.tasks, ref.ID)
		if t.givenUp != nil {
			c.recountGang(ref.ID)
		}
	}
	c.await(ref.ID)
}

// moveTasked updates the counts of workers that tasks name, and of those that run, when a
// chunk of a task changes from prev to next.
func (c *Core) moveTasked(prev, next *entry) {
	for _, side := range []struct {
		chunk *entry
		n     int
	}{{prev, -1}, {next, 1}} {
		if side.chunk == nil {
			continue
		}
		for _, worker := range side.chunk.record.(*model.TaskChunk).Workers {
			running := 0
			if runs(worker.State) {
				running = side.n
			}
			c.task(worker.Ordinal, side.n, running)
		}
	}
}

// runs reports whether a worker runs, or is being stopped and may run.
func runs(s model.WorkerState) bool { return s >= model.WorkerRunning && !s.Terminal() }

// dispatched reports whether the assigner has stored a task for the UID.
func (c *Core) dispatched(uid string) bool {
	t := c.tasks[uid]
	return t != nil && t.header != nil
}

func (c *Core) setLeaseChunk(ref model.Ref, prev, next *entry) {
	l := c.leases[ref.ID]
	if l == nil {
		l = &lease{chunks: map[int32]*entry{}, of: chunkOf(next).Key}
		c.leases[ref.ID] = l
		c.joinGang(l)
	}
	put(l.chunks, ref.Chunk, next)
	if len(l.chunks) == 0 {
		delete(c.leases, ref.ID)
	}
	if chunk := cmp.Or(next, prev); chunk != nil {
		c.setCellLease(chunkOf(chunk), len(l.chunks) > 0)
	}
	c.moveUse(chunkOf(prev), chunkOf(next))
	c.moveHolders(chunkOf(prev), chunkOf(next))
	c.moveGang(l, chunkOf(prev), chunkOf(next))
	c.await(ref.ID)
}

func chunkOf(h *entry) *model.LeaseChunk {
	if h == nil {
		return &model.LeaseChunk{}
	}
	return h.record.(*model.LeaseChunk)
}

// moveUse subtracts what prev uses and adds what next uses. It skips workers that are in
// both. If one worker of a chunk ends, these are nearly all.
func (c *Core) moveUse(prev, next *model.LeaseChunk) {
	less, more := run{chunk: prev, sign: -1}, run{chunk: next, sign: 1}
	same := prev.Each.Equal(next.Each) && prev.Role == next.Role && prev.OnVolumes == next.OnVolumes
	kept := 0
	for _, p := range prev.Workers {
		if same && kept < len(next.Workers) && next.Workers[kept] == p {
			kept++
			continue
		}
		// Both lists are in order. If next still contains p at a later place, p is subtracted
		// here and added below.
		less.take(c, p.Ordinal)
	}
	for _, p := range next.Workers[kept:] {
		more.take(c, p.Ordinal)
	}
	less.flush(c)
	more.flush(c)
}

// run collects consecutive workers on one executor, so that the executor moves in the
// index only once.
type run struct {
	chunk   *model.LeaseChunk
	sign    int
	ordinal uint32
	workers int
}

func (r *run) take(c *Core, ordinal uint32) {
	if r.workers > 0 && r.ordinal != ordinal {
		r.flush(c)
	}
	r.ordinal = ordinal
	r.workers++
}

func (r *run) flush(c *Core) {
	if r.workers > 0 {
		c.take(r.ordinal, r.sign*r.workers, r.chunk)
	}
	r.workers = 0
}
