package inventory

import (
	"cmp"
	"slices"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// host is an executor with what follows from the records about it.
type host struct {
	id         string
	generation int64
	executor   *model.Executor
	// since is when this core learned of the record.
	since time.Time
	// live is its presence, gone or not; nil when there was none.
	live *held
	hold *hold
	// refusal is the assigner's record that it refuses the assigner; nil without one.
	refusal *held

	// class and shape are its kinds, at its place in the class.
	class *class
	shape *shape
	at    int
	// listed says that it is in form.open: it may be given work unless its class is
	// closed. Free is as [shape.free] answers it, while it is listed.
	listed bool
	free   []int64
	// freed is the number of its newest entry in Core.freed that is not of a kind.
	freed uint64
	// named are the ids of the requests to disable that name it, in order.
	named    []string
	state    model.ExecutorState
	standing standing
	use      use
	// past: it is in Core.past.
	past bool
	// shut says that it was counted as disabled.
	shut bool
	// goneAt orders it in Core.absent while it counts as absent.
	absent bool
	goneAt time.Time
	// supersededAt is when a superseded agent last reported that workers of its own
	// live. It is this leader's alone.
	supersededAt time.Time
	// releasedAt is when the crowd that it was held back with was no crowd any
	// more: its time begins anew then. It is this leader's alone.
	releasedAt time.Time
}

// hold is what leases hold of the executor with an ordinal. It is kept by
// ordinal, for a lease may be told of before its executors are.
type hold struct {
	host *host
	used resource.Vector
	// byRole is what of it leases of each role hold, by folded role; nil while
	// none does.
	byRole  map[string]resource.Vector
	workers int
	// lies says how many of the workers each lease has here, in order of uid.
	lies []lie
	// tasked counts the workers that tasks name, running those of them that run.
	tasked, running int
	// freed is when this core last saw it give its last worker back.
	freed time.Time
	// isolated says that what leases hold of it is not known whole.
	isolated bool
}

// lie is workers of one lease on one executor.
type lie struct {
	uid     string
	workers int
}

// lay adds n to the workers that a lease has here; n may be negative.
func (h *hold) lay(uid string, n int) {
	at, found := slices.BinarySearchFunc(h.lies, uid, func(l lie, uid string) int { return cmp.Compare(l.uid, uid) })
	if !found {
		h.lies = slices.Insert(h.lies, at, lie{uid: uid})
	}
	if h.lies[at].workers += n; h.lies[at].workers == 0 {
		h.lies = slices.Delete(h.lies, at, at+1)
	}
}

// mentioned says whether a lease or a task names the ordinal, or may.
func (h *hold) mentioned() bool { return h.workers != 0 || h.tasked != 0 || h.isolated }

// compareRank orders executors of equal fit: newest generation, then id.
func compareRank(a, b *host) int {
	if a.generation != b.generation {
		return cmp.Compare(b.generation, a.generation)
	}
	return cmp.Compare(a.id, b.id)
}

func compareIDs(a, b *host) int { return cmp.Compare(a.id, b.id) }

func compareGone(a, b *host) int {
	return cmp.Or(a.goneAt.Compare(b.goneAt), cmp.Compare(a.id, b.id))
}

// present says whether the presence is that of the incarnation.
func present(live *held, incarnation int64) bool {
	if live == nil || live.record == nil {
		return false
	}
	return live.record.(*model.Live).Incarnation == incarnation
}

// stateOf derives the state. An incarnation whose presence this core never saw
// is REGISTERED: to a replica that started since, so is one that went before.
// Either becomes LOST if it stays away.
func (h *host) stateOf() model.ExecutorState {
	switch {
	case h.executor.Lost:
		return model.ExecutorLost
	case present(h.live, h.executor.Incarnation):
		return model.ExecutorReady
	case h.live != nil && h.live.record == nil && h.live.incarnation == h.executor.Incarnation:
		return model.ExecutorUnreachable
	}
	return model.ExecutorRegistered
}

// shown is the state as others are told it: one that is back and still has
// workers of before, that has strays, on which workers of a superseded agent live, or
// that refuses the assigner until it registers again, is known, and not yet usable.
func (h *host) shown() model.ExecutorState {
	if h.state == model.ExecutorReady && (h.executor.Returning || h.executor.Strays || h.executor.SupersededWorkers || h.refuses()) {
		return model.ExecutorRegistered
	}
	return h.state
}

// refuses reports whether the agent of this incarnation refuses the assigner.
func (h *host) refuses() bool {
	return h.refusal != nil && h.refusal.record.(*model.Refusal).Incarnation == h.executor.Incarnation
}

// stateSince is since when it is in its state, as far as this core knows.
func (h *host) stateSince() time.Time {
	switch h.state {
	case model.ExecutorReady, model.ExecutorUnreachable:
		return h.live.since
	}
	return h.executor.Since
}

func (c *Core) setExecutor(id string, next *held) {
	h := c.hosts[id]
	if h != nil {
		c.unplace(h)
		c.freed.note(h, true)
		h.shape.form.all.remove(h, h.shape.idle)
		c.byID.Remove(h)
		if len(h.executor.Untold) > 0 {
			c.late.Remove(h)
		}
		h.hold.host = nil
		c.dropHold(h.executor.Ordinal)
	}
	if next == nil {
		c.kinds++
		c.shutCount++
		c.joinKind(h, nil)
		delete(c.hosts, id)
		c.disables.unknown += len(c.disables.named[id])
		return
	}
	if h == nil {
		c.disables.unknown -= len(c.disables.named[id])
		h = &host{id: id, live: c.records[model.Ref{Kind: model.KindLive, ID: id}], refusal: c.records[model.RefusalRef(id)]}
		c.hosts[id] = h
	}
	h.executor, h.since = next.record.(*model.Executor), next.since
	h.generation = h.executor.Generation
	h.hold = c.holdOf(h.executor.Ordinal)
	h.hold.host = h
	c.byID.Insert(h)
	if len(h.executor.Untold) > 0 {
		c.late.Insert(h)
	}
	c.kinds++
	c.joinKind(h, h.executor)
	h.shape.form.all.insert(h, h.shape.idle)
	h.named = c.disables.named[id]
	c.freed.note(h, true)
	c.place(h)
}

func (c *Core) setPresence(id string, next *held) {
	h := c.hosts[id]
	if h == nil {
		return
	}
	c.unplace(h)
	h.live = next
	c.place(h)
}

func (c *Core) setRefusal(id string, next *held) {
	h := c.hosts[id]
	if h == nil {
		return
	}
	c.unplace(h)
	h.refusal = next
	c.place(h)
}

// take adds n workers of a chunk to what an ordinal holds; n may be negative.
func (c *Core) take(ordinal uint32, n int, chunk *model.LeaseChunk) {
	hold := c.holdOf(ordinal)
	if hold.host != nil {
		c.unplace(hold.host)
		defer c.place(hold.host)
	}
	hold.count(n, chunk.Each, chunk.Role)
	hold.lay(chunk.UID, n)
	if hold.workers == 0 {
		hold.freed = c.now
	}
	c.dropHold(ordinal)
}

// task adds to the workers that tasks name on an ordinal, and to those of them
// that run; either may be negative.
func (c *Core) task(ordinal uint32, tasked, running int) {
	hold := c.holdOf(ordinal)
	h := hold.host
	if h != nil {
		h.tally(-1)
		c.unlistPast(h)
	}
	hold.tasked += tasked
	hold.running += running
	if h != nil {
		h.use = h.useOf()
		h.tally(1)
		c.listPast(h)
	}
	c.dropHold(ordinal)
}

func (c *Core) holdOf(ordinal uint32) *hold {
	h := c.holds[ordinal]
	if h == nil {
		h = &hold{used: resource.Vector{}}
		c.holds[ordinal] = h
		c.ordinals.Insert(ordinal)
		c.lastOrdinal = max(c.lastOrdinal, ordinal)
	}
	return h
}

// dropHold forgets an ordinal that neither an executor nor a lease nor a task
// names.
func (c *Core) dropHold(ordinal uint32) {
	if h := c.holds[ordinal]; h.host != nil || h.mentioned() {
		return
	}
	delete(c.holds, ordinal)
	c.ordinals.Remove(ordinal)
	c.lastOrdinal, _ = c.ordinals.First()
}

// unplace takes the host out of every index that its state and its free
// resources decide; place puts it back. Between them, and only there, may they
// change.
func (c *Core) unplace(h *host) {
	c.states[h.shown()]--
	h.tally(-1)
	if h.standing == open {
		c.moved.note(h, false)
	}
	c.unfree(h)
	if h.listed {
		h.shape.form.open.remove(h, h.free)
	}
	if h.absent {
		c.absent.Remove(h)
		h.absent = false
		c.absentChanged = true
	}
	c.unlistPast(h)
	delete(c.over, h.id)
	delete(c.stranded, h.id)
	delete(c.superseded, h.id)
}

func (c *Core) place(h *host) {
	h.state = h.stateOf()
	c.states[h.shown()]++
	switch h.state {
	case model.ExecutorUnreachable:
		c.awaitReturn(h, h.live.since)
	case model.ExecutorRegistered:
		c.awaitReturn(h, h.since)
	}
	if h.state == model.ExecutorLost && h.hold.workers > 0 {
		c.stranded[h.id] = h
	}
	if h.executor.SupersededWorkers {
		c.superseded[h.id] = h
	}
	c.listPast(h)
	c.moves++
	before := h.standing
	free, ok := h.shape.free(h.hold)
	if !ok {
		c.over[h.id] = h
	}
	h.listed = ok && h.standingOf() == open
	h.stand()
	more := h.standing == open && (before != open || hasMore(h.free, free))
	h.free = h.free[:0]
	if h.listed {
		h.free = append(h.free, free...)
		h.shape.form.open.insert(h, h.free)
	}
	if more {
		c.freed.note(h, false)
	}
	if h.standing == open {
		c.moved.note(h, true)
	} else {
		c.shutCount++
	}
	c.refree(h)
}

// unfree takes what the host has free out of all sums if it may be given work, and
// refree puts it there: the host must not be in its tallies, or be, respectively.
func (c *Core) unfree(h *host) {
	if h.standing == open {
		h.shape.withdraw(h.free)
		c.shapes.opened(h.shape.standing[open]+1, h.shape.standing[open])
	}
}

func (c *Core) refree(h *host) {
	if h.standing == open {
		h.shape.offer(h.free)
		c.shapes.opened(h.shape.standing[open]-1, h.shape.standing[open])
	}
}

// awaitReturn lists the host among those that become LOST in time.
func (c *Core) awaitReturn(h *host, since time.Time) {
	h.goneAt, h.absent = since, true
	c.absent.Insert(h)
	c.absentChanged = true
}
