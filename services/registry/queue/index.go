package queue

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/core"
	"berth.dev/pkg/model"
)

// set replaces what the core knows of a record, and maintains every index. No other
// function does. The view, a decision, and taking a decision back all use it. A nil
// record means that the key does not exist.
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
		c.update(v, func() {
			if v.awaitsBind() {
				c.moveHolds(v, v.lease[ref.Chunk], -1)
			}
			setChunk(&v.lease, ref.Chunk, record)
			if v.awaitsBind() {
				c.moveHolds(v, v.lease[ref.Chunk], 1)
			}
		})
	case model.KindOffer:
		c.setOffer(ref.ID, record)
	case model.KindTaskHeader:
		v := c.version(ref.ID)
		c.update(v, func() {
			v.header, _ = record.(*model.TaskHeader)
			// The view shows the task, or that it was deleted: the answer no longer matters.
			v.accepted = false
			delete(c.accepted, v.uid)
		})
	case model.KindTaskChunk:
		v := c.version(ref.ID)
		before := v.tasks[ref.Chunk]
		c.update(v, func() {
			v.workers.count(before, -1)
			setChunk(&v.tasks, ref.Chunk, record)
			v.workers.count(v.tasks[ref.Chunk], 1)
			v.setReturned(ref.Chunk, record)
			v.setFailed(ref.Chunk, v.tasks[ref.Chunk])
		})
		if v.r != nil {
			c.accountVersion(v, v.r.Key.Job)
			c.noteChange(v.r.Key.Job, changeOf(before), changeOf(v.tasks[ref.Chunk]))
		}
	}
}

func setChunk[T model.Record](chunks *map[int32]T, n int32, record model.Record) {
	chunk, exists := record.(T)
	if !exists {
		delete(*chunks, n)
		return
	}
	if *chunks == nil {
		*chunks = map[int32]T{}
	}
	(*chunks)[n] = chunk
}

// setExecutor maintains the executor IDs of the ordinals in leases and tasks, and which of
// the executors may have holds.
func (c *Core) setExecutor(id string, record model.Record) {
	e, exists := record.(*model.Executor)
	if ordinal, known := c.executors[id]; known && (!exists || e.Ordinal != ordinal) {
		c.setUsable(ordinal, "")
		delete(c.names, ordinal)
		delete(c.executors, id)
		delete(c.programs, ordinal)
	}
	if !exists {
		return
	}
	c.executors[id], c.names[e.Ordinal] = e.Ordinal, id
	if e.NeedsCommand {
		c.programs[e.Ordinal] = true
	} else {
		delete(c.programs, e.Ordinal)
	}
	how := ""
	switch {
	case e.Lost:
		how = "LOST"
	case e.Draining:
		how = "draining"
	}
	c.setUsable(e.Ordinal, how)
}

func (c *Core) setStage(key model.Key, record model.Record) {
	before := c.stages[key]
	stage, exists := record.(*model.Stage)
	if exists {
		c.stages[key] = stage
	} else {
		core.Drop(&c.stages, key)
	}
	switch {
	case exists && before == nil:
		c.stageKeys.Insert(key)
	case !exists && before != nil:
		c.stageKeys.Delete(key)
	}
	c.account(key.Job, usageOfStage(before), usageOfStage(stage))
	for _, v := range c.returned[key] {
		c.reindexUnsettled(v)
	}
}

func (c *Core) setReservation(ref model.Ref, record model.Record) {
	v := c.version(ref.ID)
	before := v.r
	r, _ := record.(*model.Reservation)
	c.update(v, func() {
		// A version that is alone under its key need not move when its epoch becomes known.
		relist := before == nil || r == nil || before.Epoch != r.Epoch && len(c.byKey[r.Key]) > 1
		if before != nil {
			c.states[before.State]--
			if relist {
				c.unlist(v)
			}
		}
		awaited := v.awaitsBind()
		v.r = r
		if awaits := v.awaitsBind(); awaited && !awaits {
			c.moveAllHolds(v, -1)
		} else if awaits && !awaited {
			c.moveAllHolds(v, 1)
		}
		if r == nil {
			return
		}
		c.states[r.State]++
		if relist {
			c.enlist(v)
		}
		c.place = max(c.place, r.Place)
	})
	c.accountVersion(v, ref.Key.Job)
	c.noteChange(ref.Key.Job, updatedAt(before), updatedAt(r))
	for _, chunk := range v.tasks {
		switch {
		case before == nil && r != nil:
			c.noteChange(ref.Key.Job, time.Time{}, changeOf(chunk))
		case before != nil && r == nil:
			c.noteChange(ref.Key.Job, changeOf(chunk), time.Time{})
		}
	}
	switch {
	case before == nil && r != nil:
		c.countChild(keptParent(r), 1)
	case before != nil && r == nil:
		c.countChild(keptParent(before), -1)
	}
}

// keptParent returns the parent of a version if it is kept as long as the version is. The record of a round
// of a gang that restarts has what it needs of the rounds before it.
func keptParent(r *model.Reservation) string {
	if len(r.EarlierOf) > 0 {
		return ""
	}
	return r.Parent
}

// countChild changes the number of versions that have a parent.
func (c *Core) countChild(parent string, n int) {
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

// unlist removes a version from the versions of its key. Slices in byKey are never
// modified in place.
func (c *Core) unlist(v *version) {
	key := v.r.Key
	versions := slices.DeleteFunc(slices.Clone(c.byKey[key]), func(o *version) bool { return o == v })
	if len(versions) > 0 {
		c.byKey[key] = versions
		return
	}
	core.Drop(&c.byKey, key)
	c.keys.Delete(key)
}

// enlist adds a version to the versions of its key, ordered oldest first.
func (c *Core) enlist(v *version) {
	key := v.r.Key
	versions := c.byKey[key]
	if len(versions) == 0 {
		c.keys.Insert(key)
	}
	at, _ := slices.BinarySearchFunc(versions, v, byAge)
	c.byKey[key] = slices.Insert(slices.Clone(versions), at, v)
}

// byAge orders versions by the epoch that accepted them. Versions that are not durable
// come last, in the order of their UIDs: all those UIDs belong to one term.
func byAge(a, b *version) int {
	durable := func(r *model.Reservation) uint64 { return uint64(r.Epoch) - 1 } // 0 wraps to the last
	return cmp.Or(
		cmp.Compare(durable(a.r), durable(b.r)),
		cmp.Compare(len(a.uid), len(b.uid)),
		strings.Compare(a.uid, b.uid),
	)
}

// within returns the keys of a job, of one of its stages or of one name, in order and
// beginning at a key. Without a job it returns all keys. The set must not change during
// the iteration.
func within(keys *core.Ordered[model.Key], of, from model.Key) iter.Seq[model.Key] {
	return func(yield func(model.Key) bool) {
		for key := range keys.From(slices.MaxFunc([]model.Key{of, from}, model.Key.Compare)) {
			in := (of.Job == "" || key.Job == of.Job) && (of.Stage == "" || key.Stage == of.Stage) &&
				(of.Name == "" || key.Name == of.Name)
			if !in || !yield(key) {
				return
			}
		}
	}
}

// versionsOf returns the versions within a scope, in order of their keys. The versions of
// each key are ordered oldest first.
func (c *Core) versionsOf(of model.Key) []*version {
	var versions []*version
	for key := range within(&c.keys, of, model.Key{}) {
		versions = append(versions, c.byKey[key]...)
	}
	return versions
}

// isLastOf reports whether a job has at most one version left.
func (c *Core) isLastOf(job string) bool {
	n := 0
	for key := range within(&c.keys, model.Key{Job: job}, model.Key{}) {
		if n += len(c.byKey[key]); n > 1 {
			return false
		}
	}
	return true
}

// inOrder returns versions of an index in the order of the queue.
func (c *Core) inOrder(index map[string]*version) []*version {
	return slices.SortedFunc(maps.Values(index), func(a, b *version) int { return c.scheduler.Compare(a.r, b.r) })
}

// version returns the version of a UID, and creates it if necessary.
func (c *Core) version(uid string) *version {
	v := c.versions[uid]
	if v == nil {
		v = &version{uid: uid}
		c.versions[uid] = v
	}
	return v
}

// update changes a version and then its places in the indexes.
func (c *Core) update(v *version, change func()) {
	wasPending, before, contributed, delayed := v.isPending(), v.r, v.contribution(), v.delaysRound()
	c.leaveIndexes(v)
	change()
	if wasPending && v.hasLease() && c.term != 0 {
		c.counts.TimeInQueue.Observe(c.now.Sub(v.r.QueuedAt()))
	}
	if v.r == nil && v.header == nil && len(v.lease) == 0 && len(v.tasks) == 0 && v.offer == nil {
		core.Drop(&c.versions, v.uid)
		delete(c.accepted, v.uid)
		delete(c.granted, v.uid)
	}
	v.quarantined = c.isQuarantined(v)
	v.demand = v.demandAt(c.now)
	if r := cmp.Or(v.r, before); r != nil {
		c.accountJob(r.Key.Job, contributed, v.contribution())
	}
	c.enterIndexes(v)
	if delayed != v.delaysRound() || v.r != nil && len(v.r.Spec.CompletesWith) > 0 {
		c.reindexGang(cmp.Or(v.r, before).Key)
	}
	if n := len(c.freed); len(v.waits) > 0 && (n == 0 || c.freed[n-1] != v) {
		c.freed = append(c.freed, v)
	}
}

func (c *Core) leaveIndexes(v *version) {
	c.scheduler.Remove(&v.entry)
	if v.leased != nil {
		c.leased.Delete(v.leased)
		v.leased = nil
	}
	if v.due != nil {
		v.due.Delete(v.deadline)
		v.due = nil
	}
	delete(c.held, v.uid)
	delete(c.pendingActive, v.uid)
	delete(c.unstable, v.uid)
	if v.mayMiss() {
		c.gaps.Delete(gap{v.r.Key, v.uid})
	}
	if len(v.returned) > 0 && v.r != nil {
		key := stageKey(v.r.Key)
		if delete(c.returned[key], v.uid); len(c.returned[key]) == 0 {
			delete(c.returned, key)
		}
	}
}

func (c *Core) enterIndexes(v *version) {
	if v.isPending() {
		c.scheduler.Add(&v.entry, v.r)
	}
	if v.toDispatch() {
		v.leased = v.r
		c.leased.Insert(v.r)
	}
	if v.isHeld() {
		c.held[v.uid] = v
	}
	if v.due = c.deadlineOf(v); v.due != nil {
		v.due.Insert(v.deadline)
	}
	if v.gaveUp() || v.loops() {
		c.unstable[v.uid] = v
	}
	if v.mayMiss() {
		c.gaps.Insert(gap{v.r.Key, v.uid})
	}
	if v.dispatched() && !v.hasFollowUp() {
		c.pendingActive[v.uid] = v
	}
	if len(v.returned) > 0 && v.alive() && !v.quarantined {
		key := stageKey(v.r.Key)
		if c.returned[key] == nil {
			c.returned[key] = map[string]*version{}
		}
		c.returned[key][v.uid] = v
	}
	c.reindexUnsettled(v)
}

// deadlineOf sets the deadline of a version and returns the set to which the deadline
// belongs; nil if there is none. An ended version has no deadline while another version
// has it as its parent.
func (c *Core) deadlineOf(v *version) *core.Ordered[deadline] {
	switch {
	case v.r == nil || v.quarantined:
	case v.r.State.Terminal() && c.children[v.uid] == 0:
		v.deadline = deadline{latest(v.r.EndedAt.Add(c.config.KeepEnded), v.keepUntil), v.uid}
		return &c.ended
	case v.alive():
		if at := v.nextClock(); !at.IsZero() {
			v.deadline = deadline{at, v.uid}
			return &c.clocks
		}
	}
	return nil
}

// nextClock returns the time at which a living version enters its queue or it or its hold
// expires, whichever is first; zero if there is none.
func (v *version) nextClock() (next time.Time) {
	var entry, timeout time.Time
	if v.isDelayed() {
		entry = v.r.NotBefore
	}
	if v.isPending() && v.r.Chosen == "" && v.r.Spec.QueueTimeout > 0 && v.r.AwaitsFirstGrant() {
		timeout = v.r.QueuedAt().Add(v.r.Spec.QueueTimeout)
	}
	for _, at := range []time.Time{v.r.ExpiresAt(), entry, timeout, v.heldUntil()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// tooManyEnded reports whether more ended versions are kept than Config.MaxEnded.
func (c *Core) tooManyEnded() bool {
	return c.config.MaxEnded > 0 && c.ended.Len() > c.config.MaxEnded
}

// reindexUnsettled maintains the index of the versions that call for a change.
func (c *Core) reindexUnsettled(v *version) {
	if c.isUnsettled(v) {
		c.unsettled[v.uid] = v
	} else {
		delete(c.unsettled, v.uid)
	}
}

// isUnsettled reports whether the records of a version, or the outcome of a cycle, call
// for a change that no request makes.
func (c *Core) isUnsettled(v *version) bool {
	switch {
	case v.quarantined:
	case v.is(model.Queued):
		return v.dispatched() && v.hasFollowUp() || v.header == nil && (v.refused || len(v.r.Unwanted) > 0) ||
			c.splits(v) || c.isLosing(v) || takesLatest(v)
	case v.is(model.Active) && c.endingOf(v) != (ending{}):
		return true
	case v.restarts():
		return c.roundEnded(v.r.Key)
	case v.is(model.Active):
		return c.owesRequeue(v) || v.leaseOver() && (v.header == nil || v.header.Ended)
	case v.is(model.Cancelling):
		return v.header == nil || v.header.Ended && v.leaseOver()
	}
	return false
}
