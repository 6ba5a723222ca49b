package dispatch

import (
	"container/heap"
	"slices"
	"time"

	"berth.dev/pkg/model"
)

// reservation is a reservation's record and its modification revision.
type reservation struct {
	*model.Reservation
	mod int64
}

// ends says whether the workers of the reservation are to go. One that is not
// there has none.
func (r reservation) ends() bool {
	return r.Reservation == nil || r.State == model.Cancelling || r.State.Terminal()
}

// lease is the chunks of a lease that are there, by number, and the create
// revision of its first one.
type lease struct {
	chunks map[int32]*model.LeaseChunk
	create int64
}

// whole says whether every chunk and worker of the lease is there.
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

// placements gives the lease's workers in order of index.
func (l lease) placements() []model.Placement {
	var all []model.Placement
	for _, chunk := range l.chunks {
		all = append(all, chunk.Workers...)
	}
	slices.SortFunc(all, func(a, b model.Placement) int { return a.Worker.Compare(b.Worker) })
	return all
}

// host is an executor: its record, the workers placed on it that have not
// ended, and the orders that wait for it.
type host struct {
	// record is nil when the view has none.
	record *model.Executor
	// placed is in order of uid and worker ID.
	placed  []placed
	waiting queue
	flying  int
	// refusing is since when the incarnation has refused this service, without an
	// answer in between; zero while it does not.
	refusing time.Time
	// strays are the orders to stop what it should not have.
	strays map[instance]*order
}

type placed struct {
	uid      string
	workerID model.WorkerID
}

func (p placed) compare(o placed) int {
	switch {
	case p.uid < o.uid:
		return -1
	case p.uid > o.uid:
		return 1
	}
	return p.workerID.Compare(o.workerID)
}

// lost says whether the executor's workers were given up. A record that is gone
// was deleted: nothing will ever be heard of that executor again.
func (h *host) lost() bool { return h.record == nil || h.record.Lost }

func (c *Core) host(ordinal uint32) *host {
	h := c.hosts[ordinal]
	if h == nil {
		h = &host{strays: map[instance]*order{}}
		c.hosts[ordinal] = h
	}
	return h
}

// executorID names the executor of an ordinal; empty when it is gone.
func (c *Core) executorID(ordinal uint32) string {
	if h := c.hosts[ordinal]; h != nil && h.record != nil {
		return h.record.ID
	}
	return ""
}

// present says whether orders can reach the executor.
func (c *Core) present(h *host) bool { return h.record != nil && c.live[h.record.ID] }

// changed takes in one record of the view. A leader knows its own records
// better: it alone writes them.
func (c *Core) changed(e model.Changed) {
	switch e.Ref.Kind {
	case model.KindTaskHeader, model.KindTaskChunk, model.KindRefusal:
		if c.leading {
			return
		}
	case model.KindLeader:
		c.leaderChanged(e)
		return
	}
	c.set(e.Ref, e.Record, e.Create, e.Mod)
}

// leaderChanged notes the registry's term: a call that a deposed leader sent would
// fail its compare for ever, so it is refused instead. What the view shows of an
// earlier term than the store holds counts for nothing; see model.Leads.
func (c *Core) leaderChanged(e model.Changed) {
	if e.Ref.ID == model.ServiceRegistry && e.Mod >= c.registryTerm {
		c.registryTerm = e.Create
	}
}

func (c *Core) setReservation(ref model.Ref, r *model.Reservation, mod int64) {
	if c.reservations[ref.ID].mod > mod {
		return
	}
	var unwanted model.WorkerSet
	if r == nil {
		delete(c.reservations, ref.ID)
	} else {
		c.reservations[ref.ID] = reservation{r, mod}
		unwanted = r.Unwanted
	}
	if t := c.tasks[ref.ID]; t != nil && !t.unwanted.Equal(unwanted) {
		c.tallyAll(t, -1)
		t.unwanted = unwanted
		c.tallyAll(t, +1)
	}
	c.mark(ref.ID)
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
	c.mark(ref.ID)
}

func (c *Core) setExecutor(id string, e *model.Executor) {
	c.markRefusal(id)
	if old, ok := c.ordinals[id]; ok && (e == nil || e.Ordinal != old) {
		h := c.hosts[old]
		h.record = nil
		c.markHost(old)
		delete(c.ordinals, id)
		for _, o := range h.strays {
			c.drop(o)
		}
		if len(h.placed)+len(h.waiting)+len(h.strays)+h.flying == 0 {
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
	}
	h.record = e
	if e.Lost && len(h.strays) > 0 {
		c.unbar()
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

// setReady takes the registry's ready mark. Before it, as in a cluster that was
// restored, what no record wants is left alone: the record may be yet to come.
func (c *Core) setReady(r *model.Ready) {
	c.ready = r != nil && !r.Since.IsZero()
	if !c.ready || !c.leading {
		return
	}
	for len(c.held) > 0 {
		heap.Pop(&c.held).(*order).enter(&c.due)
	}
	c.lookAtAll()
}

// lookAtAll asks for a look at everything that review may decide something about.
// That is little of a large fleet: all of it is looked at when this replica begins
// to lead, and everybody waits meanwhile.
func (c *Core) lookAtAll() {
	for uid, t := range c.tasks {
		if h := t.header; h == nil || !h.Complete || h.Ended || h.Stopping || t.leaving > 0 || c.reservations[uid].ends() {
			c.dirtyTasks[uid] = struct{}{}
		}
	}
	for id := range c.refusals {
		c.markRefusal(id)
	}
	for ordinal, h := range c.hosts {
		if len(h.placed) > 0 && (h.lost() || h.record.Draining || c.refuses(h)) {
			c.dirtyHosts[ordinal] = struct{}{}
		}
	}
}

// mark asks for a look at a task.
func (c *Core) mark(uid string) {
	if c.leading && c.tasks[uid] != nil {
		c.dirtyTasks[uid] = struct{}{}
	}
}

// markHost asks for a look at an executor.
func (c *Core) markHost(ordinal uint32) {
	if c.leading {
		c.dirtyHosts[ordinal] = struct{}{}
	}
}
