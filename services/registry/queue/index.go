package queue

import (
	"cmp"
	"slices"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// set is the one function that changes what the core knows of a record,
// whether the view tells of it, a decision makes it or a roll-back takes it
// back; nil for a key that is not there. It keeps every index.
func (c *Core) set(ref model.Ref, record model.Record) {
	switch ref.Kind {
	case model.KindReservation:
		c.setReservation(ref, record)
	case model.KindStage:
		c.setStage(ref.Key, record)
	case model.KindReady:
		c.ready, _ = record.(*model.Ready)
	case model.KindExecutor:
		c.setExecutor(ref.ID, record)
	case model.KindLeaseChunk:
		v := c.version(ref.ID)
		c.update(v, func() { setChunk(&v.lease, ref.Chunk, record) })
	case model.KindTaskHeader:
		v := c.version(ref.ID)
		c.update(v, func() {
			v.header, _ = record.(*model.TaskHeader)
			// A task that was seen speaks for itself, and so does its end.
			v.taken = false
			delete(c.taken, v.uid)
		})
	case model.KindTaskChunk:
		v := c.version(ref.ID)
		c.update(v, func() {
			setChunk(&v.tasks, ref.Chunk, record)
			v.setSpent(ref.Chunk, record)
		})
	}
}

func setChunk[T model.Record](chunks *map[int32]T, n int32, record model.Record) {
	chunk, there := record.(T)
	if !there {
		delete(*chunks, n)
		return
	}
	if *chunks == nil {
		*chunks = map[int32]T{}
	}
	(*chunks)[n] = chunk
}

func (c *Core) setStage(key model.Key, record model.Record) {
	before, had := c.stages[key]
	stage, has := record.(*model.Stage)
	if has {
		c.stages[key] = stage
	} else {
		drop(&c.stages, key)
	}
	switch {
	case has && !had:
		c.stageKeys.Insert(key)
	case had && !has:
		c.stageKeys.Delete(key)
	}
	c.account(key.Job, 0, sizeOfStage(stage)-sizeOfStage(before))
	for _, v := range c.spent[key] {
		c.judge(v)
	}
}

func (c *Core) setReservation(ref model.Ref, record model.Record) {
	v := c.version(ref.ID)
	before := v.r
	r, _ := record.(*model.Reservation)
	was := v.stored
	v.stored = usageOf(r)
	c.account(ref.Key.Job, v.stored.queued-was.queued, v.stored.bytes-was.bytes)
	switch {
	case before == nil && r != nil:
		defer c.adopt(r.Parent, 1)
	case before != nil && r == nil:
		defer c.adopt(before.Parent, -1)
	}
	c.update(v, func() {
		// One that is alone under its key need not move when it gets its epoch.
		relist := before == nil || r == nil || before.Epoch != r.Epoch && len(c.byKey[r.Key]) > 1
		if before != nil {
			c.states[before.State]--
			if relist {
				c.unlist(v)
			}
		}
		if v.r = r; r == nil {
			v.group = ""
			return
		}
		if v.group == "" {
			v.group = r.Spec.Constraints.Group()
		}
		c.states[r.State]++
		if relist {
			c.list(v)
		}
		c.place = max(c.place, r.Place)
	})
}

// adopt counts the versions that came of another.
func (c *Core) adopt(parent string, n int) {
	if parent == "" {
		return
	}
	if c.children[parent] += n; c.children[parent] == 0 {
		delete(c.children, parent)
	}
	if v := c.versions[parent]; v != nil {
		c.update(v, func() {})
	}
}

// drop deletes from an index that may have been large. A map never shrinks, so
// one that is empty is made anew: what came and went takes no memory.
func drop[K comparable, V any](index *map[K]V, key K) {
	if delete(*index, key); len(*index) == 0 {
		*index = map[K]V{}
	}
}

// unlist takes a version out of those of its key.
func (c *Core) unlist(v *version) {
	key := v.r.Key
	versions := slices.DeleteFunc(slices.Clone(c.byKey[key]), func(o *version) bool { return o == v })
	if len(versions) > 0 {
		c.byKey[key] = versions
		return
	}
	drop(&c.byKey, key)
	c.keys.Delete(key)
}

// list puts a version among those of its key, the newest last.
func (c *Core) list(v *version) {
	key := v.r.Key
	versions := c.byKey[key]
	if len(versions) == 0 {
		c.keys.Insert(key)
	}
	at, _ := slices.BinarySearchFunc(versions, v, byAge)
	c.byKey[key] = slices.Insert(slices.Clone(versions), at, v)
}

// lastOf says whether a job has no more than one version left.
func (c *Core) lastOf(job string) bool {
	n := 0
	for key := range c.keys.From(model.Key{Job: job}) {
		if key.Job != job || n > 1 {
			break
		}
		n += len(c.byKey[key])
	}
	return n <= 1
}

// byAge orders versions by the epoch that accepted them; those not durable yet
// come last, in the order of their uids, which are of one term.
func byAge(a, b *version) int {
	durable := func(r *model.Reservation) uint64 { return uint64(r.Epoch) - 1 } // 0 wraps to the last
	return cmp.Or(
		cmp.Compare(durable(a.r), durable(b.r)),
		cmp.Compare(len(a.uid), len(b.uid)),
		cmp.Compare(a.uid, b.uid),
	)
}

// version finds or makes what is known of a uid.
func (c *Core) version(uid string) *version {
	v := c.versions[uid]
	if v == nil {
		v = &version{uid: uid}
		c.versions[uid] = v
	}
	return v
}

// update changes a version and moves it to where it now belongs.
func (c *Core) update(v *version, change func()) {
	waited := v.waits()
	c.leaveIndexes(v)
	change()
	if waited && v.holdsLease() && c.term != 0 {
		c.counts.TimeInQueue.Observe(c.now.Sub(v.r.CreatedAt))
	}
	if v.r == nil && v.header == nil && len(v.lease) == 0 && len(v.tasks) == 0 {
		drop(&c.versions, v.uid)
		delete(c.taken, v.uid)
		delete(c.granted, v.uid)
	}
	v.held = c.holds(v)
	c.enterIndexes(v)
	if n := len(c.freed); len(v.waiters) > 0 && (n == 0 || c.freed[n-1] != v) {
		c.freed = append(c.freed, v)
	}
}

func (c *Core) leaveIndexes(v *version) {
	if v.queued != nil {
		c.dequeue(v)
	}
	if v.leased != nil {
		c.leased.Delete(v.leased)
		v.leased = nil
	}
	delete(c.unsettled, v.uid)
	delete(c.unnoted, v.uid)
	c.leaveSpent(v)
}

func (c *Core) enterIndexes(v *version) {
	if v.waits() {
		c.enqueue(v)
	}
	if v.is(model.Queued) && v.holdsLease() && v.header == nil && !v.taken && !v.refused && !v.held {
		v.leased = v.r
		c.leased.Insert(v.r)
	}
	c.schedule(v)
	if v.dispatched() && !v.goesOn() {
		c.unnoted[v.uid] = v
	}
	c.enterSpent(v)
	c.judge(v)
}

// schedule keeps the indexes of what expires or is forgotten.
func (c *Core) schedule(v *version) {
	at := c.dueAt(v)
	forgotten := !at.IsZero() && v.r.State.Terminal()
	if at.Equal(v.deadline) && forgotten == v.forgotten {
		return
	}
	if before := (deadline{v.deadline, v.uid}); !v.deadline.IsZero() {
		c.deadlines.Delete(before)
		if v.forgotten {
			c.ended.Delete(before)
		}
	}
	v.deadline, v.forgotten = at, forgotten
	if after := (deadline{at, v.uid}); !at.IsZero() {
		c.deadlines.Insert(after)
		if forgotten {
			c.ended.Insert(after)
		}
	}
}

// tooManyEnded reports whether more ended versions are kept than may be.
func (c *Core) tooManyEnded() bool {
	return c.config.MaxEnded > 0 && c.ended.Len() > c.config.MaxEnded
}

// judge keeps the index of what calls for a change.
func (c *Core) judge(v *version) {
	if c.unsettledNow(v) {
		c.unsettled[v.uid] = v
	} else {
		delete(c.unsettled, v.uid)
	}
}

// enqueue puts a version into its queue. A new head may be tried at once.
func (c *Core) enqueue(v *version) {
	g := c.groups[v.group]
	if g == nil {
		g = &group{id: v.group, order: core.NewOrdered(c.compare)}
		c.groups[g.id] = g
	}
	v.queued = v.r
	g.order.Insert(v.r)
	g.workers += v.r.Workers.Len()
	if g.order.At(0) == v.r {
		c.makeDue(g)
	}
}

// dequeue takes a version out of its queue. Whoever is the head then may be
// tried at once; a queue that is empty is gone.
func (c *Core) dequeue(v *version) {
	g := c.groups[v.group]
	wasHead := g.order.At(0) == v.queued
	g.order.Delete(v.queued)
	g.workers -= v.queued.Workers.Len()
	v.queued = nil
	switch {
	case g.order.Len() == 0:
		drop(&c.groups, g.id)
		delete(c.due, g.id)
	case wasHead:
		c.makeDue(g)
	}
}
