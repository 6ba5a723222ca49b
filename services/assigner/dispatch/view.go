package dispatch

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// reservation is a reservation's record and its modification revision.
type reservation struct {
	*model.Reservation
	mod int64
	// adds is what the version adds to its gang.
	adds membership
}

// ends reports whether all workers of the reservation must end. It returns true for a
// reservation without a record, too.
func (r reservation) ends() bool {
	return r.Reservation == nil || r.State == model.Cancelling || r.State.Terminal()
}

// workers returns the workers of the reservation; nil for one without a record.
func (r reservation) workers() model.WorkerSet {
	if r.Reservation == nil {
		return nil
	}
	return r.Workers
}

// spec returns the spec of a reservation, and the zero spec of one without a record.
func (c *Core) spec(uid string) *model.Spec {
	if r := c.reservations[uid]; r.Reservation != nil {
		return &r.Spec
	}
	return &model.Spec{}
}

// lease has the known chunks of a lease by number, and the create revision of the first
// chunk.
type lease struct {
	chunks map[int32]*model.LeaseChunk
	create int64
}

// whole reports whether every chunk and worker of the lease is known.
func (l lease) whole() bool {
	first := l.chunks[0]
	if first == nil || len(l.chunks) != int(first.Chunks) {
		return false
	}
	n := 0
	for _, chunk := range l.chunks {
		n += len(chunk.Workers)
	}
	return n == int(first.Total)
}

// placements returns the lease's workers in order of worker ID.
func (l lease) placements() []model.Placement {
	var all []model.Placement
	for _, chunk := range l.chunks {
		all = append(all, chunk.Workers...)
	}
	slices.SortFunc(all, func(a, b model.Placement) int { return a.Worker.Compare(b.Worker) })
	return all
}

// host is an executor: its record, the workers placed on it that may run, and the requests to
// it.
type host struct {
	// record is nil if the executor has none.
	record *model.Executor
	// placed has the workers in order of uid and worker ID.
	placed []placed
	// waiting has the requests that wait until fewer calls to the executor are in
	// flight, or until the executor is present.
	waiting requestQueue
	calls   int
	// refusing is the time since which the incarnation has refused this service without
	// another answer in between, or zero.
	refusing time.Time
	// orphans has the requests to stop workers that the executor should not have.
	orphans map[instance]*request
	// gangs has the gangs whose members in memory name the executor.
	gangs map[*gang]struct{}
	// volumes has the volumes whose records name the executor as their home. The value is
	// true if the executor must destroy the volume. asked has the volumes that requests to
	// destroy volumes have named in this round.
	volumes map[string]bool
	asked   map[string]bool
}

type placed struct {
	uid      string
	workerID model.WorkerID
}

func (p placed) compare(o placed) int {
	return cmp.Or(cmp.Compare(p.uid, o.uid), p.workerID.Compare(o.workerID))
}

// lost reports whether the executor's workers are given up. An executor whose record was
// deleted never reports again.
func (h *host) lost() bool { return h.record == nil || h.record.Lost }

// isCell reports whether the executor is a cell.
func (h *host) isCell() bool { return h != nil && h.record != nil && h.record.Cell }

// draining reports whether the executor is drained, so that its workers must stop.
func (h *host) draining() bool { return h.record != nil && h.record.Draining }

func (c *Core) host(ordinal uint32) *host {
	h := c.hosts[ordinal]
	if h == nil {
		h = &host{waiting: newRequestQueue(), orphans: map[instance]*request{}}
		c.hosts[ordinal] = h
	}
	return h
}

// executorID returns the ID of an executor, and "" if its record was deleted.
func (c *Core) executorID(ordinal uint32) string {
	if h := c.hosts[ordinal]; h != nil && h.record != nil {
		return h.record.ID
	}
	return ""
}

// present reports whether requests can reach the executor.
func (c *Core) present(h *host) bool { return h.record != nil && c.live[h.record.ID] }

// changed stores one record of the view. A leader ignores the records of its own service:
// only the leader writes them, and its memory is ahead of the view.
func (c *Core) changed(e model.Changed) {
	switch e.Ref.Kind {
	case model.KindTaskHeader, model.KindTaskChunk, model.KindRefusal:
		if c.leading {
			return
		}
	case model.KindLeader:
		// The assigner refuses a dispatch of a deposed leader of the registry, because
		// its compare would fail forever. The view may still show an earlier term than
		// the one in a model.LeaderTerm event.
		if e.Ref.ID == model.ServiceRegistry && e.Mod >= c.registryTerm {
			c.registryTerm = e.Create
		}
		return
	}
	c.set(e.Ref, e.Record, e.Create, e.Mod)
}

func (c *Core) setReservation(ref model.Ref, r *model.Reservation, mod int64) {
	was := c.reservations[ref.ID]
	if was.mod > mod {
		return
	}
	c.reservations[ref.ID] = reservation{r, mod, was.adds}
	c.noteEnded(was.Reservation, r)
	c.updateGang(ref.ID)
	if g := c.reservations[ref.ID].adds.gang; g != nil && r != nil && was.Reservation != nil &&
		!(was.Requeued.Equal(r.Requeued) && was.Missing.Equal(r.Missing)) {
		c.membersChanged(g)
	}
	if r == nil {
		delete(c.reservations, ref.ID)
	}
	if t := c.tasks[ref.ID]; t != nil {
		c.follow(t)
	}
	if r != nil && len(r.StopGraces) > 0 {
		c.hasten(ref.ID)
	}
	c.markTask(ref.ID)
}

// follow copies from a task's reservation what the indexes of the task's workers depend on.
func (c *Core) follow(t *task) {
	var unwanted model.WorkerSet
	if r := c.reservations[t.uid]; r.Reservation != nil {
		unwanted = r.Unwanted
	}
	lifetime := c.lifetimeOf(t.uid)
	if t.unwanted.Equal(unwanted) && t.lifetime == lifetime {
		return
	}
	c.tallyAll(t, -1)
	t.unwanted, t.lifetime = unwanted, lifetime
	c.tallyAll(t, +1)
}

func (c *Core) setLeaseChunk(ref model.Ref, chunk *model.LeaseChunk, create int64) {
	l := c.leases[ref.ID]
	if chunk == nil {
		delete(l.chunks, ref.Chunk)
	} else {
		if l.chunks == nil {
			l.chunks = map[int32]*model.LeaseChunk{}
		}
		l.chunks[ref.Chunk] = chunk
		if ref.Chunk == 0 {
			l.create = create
		}
	}
	if len(l.chunks) == 0 {
		delete(c.leases, ref.ID)
	} else {
		c.leases[ref.ID] = l
	}
	c.markTask(ref.ID)
}

func (c *Core) setExecutor(id string, e *model.Executor) {
	c.markRefusal(id)
	if old, ok := c.ordinals[id]; ok && (e == nil || e.Ordinal != old) {
		h := c.hosts[old]
		h.record = nil
		c.hostMoved(h)
		c.updateDrops(old)
		c.markHost(old)
		delete(c.ordinals, id)
		c.keepOrphans(h, nil)
		if len(h.placed)+len(h.volumes)+h.waiting.Len()+h.calls == 0 {
			delete(c.hosts, old)
		}
	}
	if e == nil {
		return
	}
	c.ordinals[id] = e.Ordinal
	h := c.host(e.Ordinal)
	if h.record == nil || h.record.Incarnation != e.Incarnation {
		h.refusing = time.Time{}
		c.restartDrops(h, e.Ordinal)
	}
	if h.record == nil || h.record.Address != e.Address {
		c.hostMoved(h)
	}
	h.record = e
	c.updateDrops(e.Ordinal)
	if e.Lost && len(h.orphans) > 0 {
		c.unblock()
	}
	c.markHost(e.Ordinal)
	c.wake(h)
}

func (c *Core) setLive(id string, present bool) {
	if !present {
		delete(c.live, id)
		return
	}
	c.live[id] = true
	if ordinal, ok := c.ordinals[id]; ok {
		c.wake(c.hosts[ordinal])
	}
}

// setReady stores the registry's ready mark. While the mark is absent, for example in a
// restored cluster, a missing record may still be created.
func (c *Core) setReady(r *model.Ready) {
	c.ready = r != nil && !r.Since.IsZero()
	if !c.ready || !c.leading {
		return
	}
	c.moveAll(&c.untilReady, c.untilReady.Len())
	c.markAll()
}

// markAll marks every object about which review may decide something. In a large fleet this
// is a small part, so that a new leader, whose callers wait, can review it fast.
func (c *Core) markAll() {
	for uid, t := range c.tasks {
		if h := t.header; h == nil || !h.Complete || h.Ended || h.Stopping || t.leaving > 0 || c.reservations[uid].ends() {
			c.dirtyTasks[uid] = struct{}{}
		}
		if t.header != nil && t.header.Restarts() {
			c.markGang(t)
		}
	}
	for id := range c.refusals {
		c.markRefusal(id)
	}
	for ordinal, h := range c.hosts {
		if len(h.placed) > 0 && c.clears(h) {
			c.dirtyHosts[ordinal] = struct{}{}
		}
	}
}

// clears reports whether review may end workers of an executor because of its record.
func (c *Core) clears(h *host) bool { return h.lost() || h.draining() || h.silent() || c.refuses(h) }

// markTask lets the next review look at a task.
func (c *Core) markTask(uid string) {
	if c.leading && c.tasks[uid] != nil {
		c.dirtyTasks[uid] = struct{}{}
	}
}

// markGang lets the next review look at all tasks of the gang of a task.
func (c *Core) markGang(t *task) {
	for _, uid := range c.versionsOf(t) {
		c.markTask(uid)
	}
}

// markHost lets the next review look at an executor.
func (c *Core) markHost(ordinal uint32) {
	if c.leading {
		c.dirtyHosts[ordinal] = struct{}{}
	}
}

// markRefusal lets the next review look at the refusal of an executor, if there is one.
func (c *Core) markRefusal(id string) {
	if c.leading && c.refusals[id] != nil {
		c.dirtyRefusals[id] = struct{}{}
	}
}
