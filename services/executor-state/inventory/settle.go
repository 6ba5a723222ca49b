package inventory

import (
	"maps"
	"slices"
	"sort"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// wholeLease marks a lease for evaluation with all chunks of its task.
const wholeLease int32 = -1

// duty is a lease to evaluate, together with one chunk of its task or with all chunks.
type duty struct {
	uid   string
	chunk int32
}

// todo holds the duties in the order of the changes that caused them, each once. A duty
// only says where to look: the records decide what the core then does.
type todo[D comparable] struct {
	queue  []D
	queued map[D]struct{}
}

func (t *todo[D]) len() int { return len(t.queue) }

func (t *todo[D]) add(d D) {
	if _, ok := t.queued[d]; ok {
		return
	}
	if t.queued == nil {
		t.queued = map[D]struct{}{}
	}
	t.queued[d] = struct{}{}
	t.queue = append(t.queue, d)
}

// take removes and returns at most limit duties, the oldest first.
func (t *todo[D]) take(limit int) []D {
	taken := t.queue[:min(limit, len(t.queue))]
	t.queue = t.queue[len(taken):]
	for _, d := range taken {
		delete(t.queued, d)
	}
	return taken
}

// freshLease is a lease that was granted at a revision that the view has not reached. The
// view may not show its reservation yet.
type freshLease struct {
	uid    string
	create int64
}

// mark adds a lease to the duties. Standbys mark nothing, because Elected marks all
// leases.
func (c *Core) mark(uid string, chunk int32) {
	if c.term != 0 && c.leases[uid] != nil {
		c.todo.add(duty{uid, chunk})
	}
}

func (c *Core) markRef(ref model.Ref) {
	switch ref.Kind {
	case model.KindVolumeChunk:
		c.markVolumes(ref.Key, ref.Chunk)
	case model.KindTaskChunk:
		c.mark(ref.ID, ref.Chunk)
	case model.KindReservation, model.KindLeaseChunk, model.KindTaskHeader:
		c.mark(ref.ID, wholeLease)
		c.markOffer(ref.ID)
	case model.KindOffer:
		c.markOffer(ref.ID)
	}
}

func (c *Core) markAll() {
	for _, uid := range slices.Sorted(maps.Keys(c.offers.byUID)) {
		c.markOffer(uid)
	}
	for _, uid := range slices.Sorted(maps.Keys(c.leases)) {
		c.mark(uid, wholeLease)
	}
	for _, stage := range slices.SortedFunc(maps.Keys(c.stages), model.Key.Compare) {
		for _, chunk := range slices.Sorted(maps.Keys(c.stages[stage].chunks)) {
			c.markVolumes(stage, chunk)
		}
	}
}

// settleLeases frees the capacity of ended workers and of orphaned leases. The duties of
// one UID in a step share one effect, however many of its workers ended.
func (c *Core) settleLeases() {
	var uids []string
	chunks := map[string][]int32{}
	for _, d := range c.todo.take(c.cfg.StepLimit) {
		if chunks[d.uid] == nil {
			uids = append(uids, d.uid)
		}
		chunks[d.uid] = append(chunks[d.uid], d.chunk)
	}
	for _, uid := range uids {
		l := c.leases[uid]
		c.subject = leaseRef(uid)
		switch {
		case l == nil, c.quarantined.uids[uid]:
		case c.orphaned(uid, l):
			c.decide(model.Effect{
				Puts:    c.leaveVolumes(l.volumeWorkers()),
				Deletes: l.refs(),
				// If a task was created since, this requirement fails and the lease stays.
				Expect: []model.Expect{{Ref: model.Ref{Kind: model.KindTaskHeader, ID: uid}, Absent: true}},
			})
		default:
			c.release(uid, l, chunks[uid])
		}
	}
	c.subject = model.Ref{}
}

// orphaned reports whether the lease can no longer be used: its reservation has ended or
// was deleted, and it was never dispatched. A lease is not evaluated before the view has
// reached the grant. After that, a reservation that the view does not show was deleted,
// because the grant compared its revision.
func (c *Core) orphaned(uid string, l *lease) bool {
	create := l.create()
	if create == 0 || create > c.revision || c.dispatched(uid) {
		return false
	}
	r := c.reservations[uid]
	return r == nil || r.record.(*model.Reservation).State.Terminal()
}

// release removes the workers from the lease that have ended according to the given
// chunks of the task.
func (c *Core) release(uid string, l *lease, numbers []int32) {
	t := c.tasks[uid]
	if t == nil {
		return
	}
	if slices.Contains(numbers, wholeLease) {
		numbers = slices.Collect(maps.Keys(t.chunks))
	}
	chunks := l.inOrder()
	// ended holds, for each chunk of the lease, the places of the ended workers.
	ended := make([]map[int]bool, len(chunks))
	found := false
	var left []volumeWorker
	for _, number := range numbers {
		chunk := t.chunks[number]
		if chunk == nil {
			continue
		}
		for _, worker := range chunk.record.(*model.TaskChunk).Workers {
			if worker.Occupies() {
				continue
			}
			i, at, ok := findPlacement(chunks, model.Placement{Worker: worker.ID, Ordinal: worker.Ordinal})
			if !ok {
				continue
			}
			if chunks[i].OnVolumes {
				stage := stageOf(chunks[i].Key)
				if c.quarantined.volumes[model.VolumeChunkRef(stage, worker.ID.Index)] {
					continue // the record of a volume must say that a worker has used it
				}
				left = append(left, volumeWorker{stage, worker.ID.Index, worker.Ordinal, !mayHaveRun(worker),
					worker.Incarnation, worker.Reason == fault.ReasonExecutorLost})
			}
			if ended[i] == nil {
				ended[i] = map[int]bool{}
			}
			ended[i][at], found = true, true
		}
	}
	if !found {
		return
	}
	var effect model.Effect
	for i, chunk := range chunks {
		switch len(ended[i]) {
		case 0:
		case len(chunk.Workers):
			effect.Deletes = append(effect.Deletes, chunk.Ref())
		default:
			effect.Puts = append(effect.Puts, without(chunk, ended[i]))
		}
	}
	effect.Puts = append(effect.Puts, c.leaveVolumes(left)...)
	c.decide(effect)
}

// findPlacement returns the chunk and the place of a worker in a lease. The workers in
// the chunks must be in order.
func findPlacement(chunks []*model.LeaseChunk, p model.Placement) (chunk, at int, ok bool) {
	chunk = sort.Search(len(chunks), func(i int) bool {
		workers := chunks[i].Workers
		return workers[len(workers)-1].Worker.Compare(p.Worker) >= 0
	})
	if chunk == len(chunks) {
		return 0, 0, false
	}
	at, ok = slices.BinarySearchFunc(chunks[chunk].Workers, p.Worker, func(q model.Placement, worker model.WorkerID) int {
		return q.Worker.Compare(worker)
	})
	return chunk, at, ok && chunks[chunk].Workers[at].Ordinal == p.Ordinal
}

// without returns the chunk without the workers at some places.
func without(chunk *model.LeaseChunk, places map[int]bool) *model.LeaseChunk {
	rest := *chunk
	rest.Workers = make([]model.Placement, 0, len(chunk.Workers)-len(places))
	for at, p := range chunk.Workers {
		if !places[at] {
			rest.Workers = append(rest.Workers, p)
		}
	}
	return &rest
}
