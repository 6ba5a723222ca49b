package inventory

import (
	"time"

	"berth.dev/pkg/model"
)

// entry is a record as this core knows it.
type entry struct {
	// record is nil for a presence that has ended.
	record model.Record
	// create and mod are the revisions of the key; 0 while the record is tentative.
	create, mod int64
	// since is when this core learned of the record; see Core.since.
	since time.Time
	// incarnation is the incarnation of a presence that has ended.
	incarnation int64
}

// decision holds the changes of an effect that is not durable, in order.
type decision []change

type change struct {
	ref        model.Ref
	prev, next *entry
	// endsLease reports whether the change deletes the last chunk of a lease.
	endsLease bool
}

// set replaces the entry of a record and returns the previous entry; nil means that there
// is none. It is the only writer of records and of everything that follows from them.
func (c *Core) set(ref model.Ref, next *entry) (prev *entry) {
	prev = c.records[ref]
	put(c.records, ref, next)
	switch ref.Kind {
	case model.KindReservation:
		put(c.reservations, ref.ID, next)
		c.moveDemand(prev, next)
		c.await(ref.ID)
		c.setHeld(ref.ID, prev, next)
		if prev == nil && next != nil {
			c.observeTask(ref.ID)
		}
	case model.KindTaskHeader, model.KindTaskChunk:
		c.setTask(ref, next)
	case model.KindLeaseChunk:
		c.setLeaseChunk(ref, prev, next)
	case model.KindVolumeChunk:
		c.setVolumeChunk(ref, prev, next)
	case model.KindOffer:
		c.setOffer(ref.ID, prev, next)
	case model.KindExecutor:
		c.presences++
		c.setExecutor(ref.ID, next)
	case model.KindLive:
		c.presences++
		c.setPresence(ref.ID, next)
	case model.KindDisable:
		c.requests.Set(ref.ID, recordOf[*model.Disable](next))
	case model.KindPool:
		c.pools.Set(c.index, ref.ID, recordOf[*model.Pool](next))
		c.absentChanged = true
	case model.KindSKU:
		c.usage.SetSKU(c.now, ref.ID, recordOf[*model.SKU](next))
	case model.KindForgotten:
		c.forgotten = model.Forgotten{}
		if next != nil {
			c.forgotten = *next.record.(*model.Forgotten)
		}
	case model.KindReady:
		c.ready = next
	case model.KindRefusal:
		c.setRefusal(ref.ID, next)
	}
	return prev
}

func put[K comparable](index map[K]*entry, key K, next *entry) {
	if next == nil {
		delete(index, key)
	} else {
		index[key] = next
	}
}

// decide applies an effect to memory at once and emits it. abandoned undoes it.
func (c *Core) decide(effect model.Effect) {
	changes := make(decision, 0, len(effect.Puts)+len(effect.Deletes))
	for _, record := range effect.Puts {
		next := &entry{record: record, since: c.since(c.records[record.Ref()], record)}
		changes = append(changes, change{ref: record.Ref(), prev: c.set(record.Ref(), next), next: next})
	}
	for _, ref := range effect.Deletes {
		next := c.deleted(c.records[ref], 0)
		deleted := change{ref: ref, prev: c.set(ref, next), next: next}
		deleted.endsLease = ref.Kind == model.KindLeaseChunk && c.leases[ref.ID] == nil
		changes = append(changes, deleted)
	}
	c.journal = append(c.journal, changes)
	c.actions = append(c.actions, effect)
}

// deleted returns the entry of a deleted key. For a presence, the entry has the
// incarnation and the time of the end. For any other key it is nil.
func (c *Core) deleted(prev *entry, mod int64) *entry {
	if prev == nil {
		return nil
	}
	live, ok := prev.record.(*model.Live)
	if !ok {
		if prev.record == nil {
			return prev
		}
		return nil
	}
	return &entry{mod: mod, since: c.now, incarnation: live.Incarnation}
}

// committed marks the oldest decisions as durable and answers the cycles that waited for
// them.
func (c *Core) committed(e model.Committed) {
	about := false
	for _, decision := range c.journal[:e.Effects] {
		for _, change := range decision {
			about = about || change.ref.Kind != model.KindLeaseChunk
			change.stamp(e.Revision)
			c.startClock(change)
			c.overwritten(change.ref)
			c.counts.durable(change, c.now)
			c.endPresence(change.ref)
			if change.ref.Kind == model.KindVolumeChunk {
				c.markRef(change.ref) // a LOST volume may be removed now
			}
			if change.ref.Kind == model.KindLeaseChunk && change.ref.Chunk == 0 && change.prev == nil {
				c.fresh = append(c.fresh, freshLease{change.ref.ID, e.Revision})
			}
		}
	}
	c.journal = c.journal[e.Effects:]
	// An absent executor may be due now. Most changes are of leases, and these do not affect
	// absence.
	c.absentChanged = c.absentChanged || about && c.absent.Len() > 0
	c.answerCycles()
}

// startClock restarts the clock of an absence when the change that begins the absence is
// durable, because the store may take seconds. It does not restart the clock of an
// earlier absence.
func (c *Core) startClock(ch change) {
	if ch.next == nil || ch.ref.Kind != model.KindExecutor && ch.ref.Kind != model.KindLive {
		return
	}
	since := c.now
	if sameAbsence(ch.prev, ch.next.record) {
		since = ch.prev.since
	}
	if ch.next.since.Equal(since) {
		return
	}
	ch.next.since = since
	h := c.hosts[ch.ref.ID]
	if h == nil || c.records[ch.ref] != ch.next {
		return
	}
	c.unplace(h)
	if ch.ref.Kind == model.KindExecutor {
		h.since = since
	}
	c.place(h)
}

// stamp sets the revision at which a change is durable. A later change has the entry as
// its prev, so its own stamp finds the right create revision.
func (ch change) stamp(revision int64) {
	if ch.next == nil {
		return
	}
	ch.next.mod = revision
	ch.next.create = revision
	if ch.prev != nil && ch.prev.record != nil {
		ch.next.create = ch.prev.create
	}
	ch.next.record = withCreate(ch.next.record, ch.next.create)
}

// withCreate returns the record with its create revision, if its kind has one.
func withCreate(record model.Record, create int64) model.Record {
	if chunk, ok := record.(*model.LeaseChunk); ok && chunk.Create != create {
		stamped := *chunk
		stamped.Create = create
		return &stamped
	}
	return record
}

// abandoned undoes every decision that is not durable, the latest first, and marks the
// changed records for evaluation.
func (c *Core) abandoned() {
	for len(c.journal) > 0 {
		last := len(c.journal) - 1
		for i := len(c.journal[last]) - 1; i >= 0; i-- {
			change := c.journal[last][i]
			c.set(change.ref, change.prev)
			c.markRef(change.ref)
		}
		c.journal = c.journal[:last]
	}
	c.journal, c.waiting = nil, nil
}

// changed applies a change from the view. If a decision that is not durable has changed
// the same record, the change goes below that decision: abandoned then restores it.
func (c *Core) changed(e model.Changed) {
	switch e.Ref.Kind {
	case model.KindLeader:
		switch term := c.leaders[e.Ref.ID]; {
		case e.Mod < term: // the change belongs to an earlier term; see model.LeaderTerm
		case e.Record == nil:
			c.setLeader(e.Ref.ID, 0)
		default:
			c.setLeader(e.Ref.ID, e.Create)
		}
		return
	case model.KindReservation, model.KindExecutor, model.KindLive,
		model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk,
		model.KindDisable, model.KindPool,
		model.KindSKU, model.KindReady, model.KindForgotten, model.KindRefusal, model.KindVolumeChunk,
		model.KindOffer:
	default:
		return
	}
	if below := c.underWay(e.Ref); below != nil {
		if below.prev == nil || below.prev.mod < e.Mod {
			below.prev = c.entryOf(e, below.prev)
		}
		return
	}
	if known := c.records[e.Ref]; known == nil || known.mod < e.Mod {
		c.set(e.Ref, c.entryOf(e, known))
		c.endPresence(e.Ref)
		c.markRef(e.Ref)
	}
}

// setLeader sets the term of a service's leader; 0 means that there is none.
func (c *Core) setLeader(service string, term int64) {
	c.presences++
	c.leaders[service] = term
}

// endPresence removes the entry of an ended presence once the record of its executor is
// deleted.
func (c *Core) endPresence(ref model.Ref) {
	if ref.Kind == model.KindExecutor && c.records[ref] == nil {
		delete(c.records, model.Ref{Kind: model.KindLive, ID: ref.ID})
	}
}

// entryOf returns the entry for a change from the view.
func (c *Core) entryOf(e model.Changed, prev *entry) *entry {
	if e.Record == nil {
		return c.deleted(prev, e.Mod)
	}
	return &entry{record: withCreate(e.Record, e.Create), create: e.Create, mod: e.Mod, since: c.since(prev, e.Record)}
}

// since returns since when this core has known what a record says. If an executor's
// record changes and its Since does not, the clock does not restart.
func (c *Core) since(prev *entry, record model.Record) time.Time {
	if sameAbsence(prev, record) {
		return prev.since
	}
	return c.now
}

func sameAbsence(prev *entry, record model.Record) bool {
	next, ok := record.(*model.Executor)
	if !ok || prev == nil {
		return false
	}
	last, ok := prev.record.(*model.Executor)
	return ok && last.Since.Equal(next.Since)
}

// underWay returns the first change of a record that is not durable; nil if there is
// none.
func (c *Core) underWay(ref model.Ref) *change {
	for _, decision := range c.journal {
		for i := range decision {
			if decision[i].ref == ref {
				return &decision[i]
			}
		}
	}
	return nil
}

// recordOf returns the record of an entry; nil if there is no entry.
func recordOf[R model.Record](e *entry) (record R) {
	if e != nil {
		record = e.record.(R)
	}
	return record
}
