package dispatch

import (
	"cmp"
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// gang has the versions of a reservation that count for its members: those that are queued
// or active, those from which they descend, and others of the reservation that have ended. A gang
// without a version does not exist.
type gang struct {
	key model.Key
	// versions has their UIDs in order.
	versions []string
	// wanted has the number of versions that want each worker index. It is nil for a gang with
	// one version, because almost all gangs have one.
	wanted map[int32]int
	// members is nil if the members may have changed since they were read. places has the
	// executors of these members.
	members *model.Members
	places  []*host
}

// membership is what a version adds to its gang.
type membership struct {
	gang *gang // nil if the version does not count
	// want has the workers that were not cancelled one by one and not queued again, and size is the number
	// of workers. past has those of deleted versions, which the record has. Another version wants a worker
	// that was queued again, unless that was cancelled.
	want, past model.WorkerSet
	size       int
	parent     string
	// livesIn is set if the version is queued or active: the version with which its reservation began.
	livesIn string
}

// wants returns the workers whose indexes the version adds to its gang.
func (m membership) wants() model.WorkerSet {
	if len(m.past) == 0 {
		return m.want
	}
	return m.past.Raise(m.want)
}

// workers returns the number of different worker indexes that the versions want.
func (c *Core) workers(g *gang) int {
	if g.wanted != nil {
		return len(g.wanted)
	}
	return c.reservations[g.versions[0]].adds.size
}

// wants reports whether a version of a gang wants a worker index.
func (c *Core) wants(g *gang, index int32) bool {
	if g.wanted != nil {
		return g.wanted[index] > 0
	}
	_, wanted := c.reservations[g.versions[0]].adds.wants().Number(index)
	return wanted
}

// gangSize returns the number of workers of the gang of a task. Of a gang of the parent whose members
// are not known, it is at least two, so that the agent lists them.
func (c *Core) gangSize(t *task) int {
	g := c.reservations[t.uid].adds.gang
	switch {
	case g == nil:
		return int(t.header.Workers)
	case !c.isParents(g):
		return c.workers(g)
	case c.given[g.key] != nil:
		return c.given[g.key].Workers
	}
	return max(2, c.workers(g))
}

// isParents reports whether a gang is a part of one of the parent.
func (c *Core) isParents(g *gang) bool {
	return slices.ContainsFunc(g.versions, func(uid string) bool {
		r := c.reservations[uid].Reservation
		return r != nil && r.Spec.Labels[model.GangLabel] != ""
	})
}

// SetMembers sets the members of a gang of the parent, as the agent of the cell knows them. If members is
// nil, it only reports whether those with a version are known. A new leader knows none.
func (c *Core) SetMembers(key model.Key, version string, members *model.Members) (known bool, err error) {
	g := c.gangs[key]
	switch {
	case g == nil:
		return false, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s", key)
	case !c.isParents(g):
		return false, fault.New(fault.Precondition, fault.ReasonInvalid, "%s is not a reservation of a cell's agent", key)
	case members == nil:
		return c.given[key] != nil && c.givenVersions[key] == version, nil
	}
	c.given[key], c.givenVersions[key] = members, version
	return true, nil
}

// GangMembers returns the members of the gang of a reservation: those that the agent of a cell has set, if
// the gang is one of the parent. Until then it has none, so workers do not start, and those that run
// keep their files.
func (c *Core) GangMembers(key model.Key) *model.Members {
	switch g := c.gangs[key]; {
	case g == nil || !c.isParents(g):
		return c.Members(key)
	case c.given[key] == nil:
		return noMembers
	}
	return c.given[key]
}

// updateGang updates the gang of a version after its record, or the number of its
// descendants that count, has changed.
func (c *Core) updateGang(uid string) {
	r := c.reservations[uid]
	was, is := r.adds, membership{}
	if !r.ends() {
		is.livesIn = first(r.Reservation)
	}
	if r.Reservation != nil && (is.livesIn != "" || c.descendants[uid] > 0 || c.hasEndedIn(r.Reservation)) {
		is.gang, is.want = c.gang(r.Key), r.Workers.Minus(r.Unwanted).Minus(r.Requeued)
		is.past, is.parent = pastWorkers(r.Reservation), r.Parent
	}
	if was.gang == is.gang && was.livesIn == is.livesIn && was.want.Equal(is.want) && was.past.Equal(is.past) {
		return
	}
	is.size = is.wants().Len()
	r.adds = is
	c.reservations[uid] = r
	switch {
	case was.gang == nil:
		c.join(uid, is)
	case is.gang == nil:
		c.leave(uid, was)
	default:
		is.gang.count(was.wants(), -1)
		is.gang.count(is.wants(), +1)
	}
	c.membersChanged(cmp.Or(is.gang, was.gang))
	if was.livesIn != is.livesIn {
		c.countLiving(is.livesIn, +1)
		c.countLiving(was.livesIn, -1)
	}
}

// countLiving adds a living version of a reservation if by is +1, and removes it if by is -1. If it
// is the only one, the ended versions begin or cease to count. "" is no reservation.
func (c *Core) countLiving(first string, by int) {
	if first == "" {
		return
	}
	was := c.living[first]
	is := was + by
	if c.living[first] = is; is == 0 {
		delete(c.living, first)
	}
	if was == 0 || is == 0 {
		for uid := range c.ended[first] {
			c.updateGang(uid)
		}
	}
}

// hasEndedIn reports whether a version has ended, and others of the reservation live. So the members
// are those of the reservation, and not of some of its versions.
func (c *Core) hasEndedIn(r *model.Reservation) bool {
	return countsEnded(r) && c.living[first(r)] > 0
}

// countsEnded reports whether the workers of a version count after it has ended. Those of a version
// that was replaced or cancelled are not requested any more, and a request that expired before it had
// executors never had workers, except for the rest of a batch of which parts went ahead.
func countsEnded(r *model.Reservation) bool {
	switch r.State {
	case model.Completed, model.Failed:
		return true
	case model.Expired:
		return r.Origin == model.OriginRequeue || r.Split || len(r.WorkerCounts) > 0
	}
	return false
}

// first returns the UID of the version with which the reservation of a version began. It depends on the
// record of the version alone, so the order in which records are read and deleted does not matter. For
// versions of an older Berth version, it is that of the parent.
func first(r *model.Reservation) string { return cmp.Or(r.First, r.Parent, r.UID) }

// pastWorkers returns the workers of deleted versions that the record of a version has.
func pastWorkers(r *model.Reservation) (workers model.WorkerSet) {
	if r.Ends != nil {
		for _, e := range r.Ends.Past {
			if !e.Cancelled {
				workers = workers.Raise(e.Workers)
			}
		}
	}
	return workers
}

// noteEnded keeps the versions that count after they have ended by the version with which they began.
func (c *Core) noteEnded(was, is *model.Reservation) {
	if was != nil && countsEnded(was) {
		began := first(was)
		if delete(c.ended[began], was.UID); len(c.ended[began]) == 0 {
			delete(c.ended, began)
		}
	}
	if is != nil && countsEnded(is) {
		began := first(is)
		if c.ended[began] == nil {
			c.ended[began] = map[string]struct{}{}
		}
		c.ended[began][is.UID] = struct{}{}
	}
}

// gang returns the gang of a reservation.
func (c *Core) gang(key model.Key) *gang {
	g := c.gangs[key]
	if g == nil {
		g = &gang{key: key}
		c.gangs[key] = g
	}
	return g
}

// join adds a version to its gang.
func (c *Core) join(uid string, m membership) {
	g := m.gang
	if len(g.versions) == 1 {
		g.wanted = map[int32]int{}
		g.count(c.reservations[g.versions[0]].adds.wants(), +1)
	}
	at, _ := slices.BinarySearch(g.versions, uid)
	g.versions = slices.Insert(g.versions, at, uid)
	g.count(m.wants(), +1)
	if m.parent == "" {
		return
	}
	if c.descendants[m.parent]++; c.descendants[m.parent] == 1 {
		c.updateGang(m.parent)
	}
}

// leave removes a version from its gang.
func (c *Core) leave(uid string, m membership) {
	g := m.gang
	at, _ := slices.BinarySearch(g.versions, uid)
	g.versions = slices.Delete(g.versions, at, at+1)
	g.count(m.wants(), -1)
	switch len(g.versions) {
	case 0:
		delete(c.gangs, g.key)
		delete(c.given, g.key)
		delete(c.givenVersions, g.key)
	case 1:
		g.wanted = nil
	}
	if m.parent == "" {
		return
	}
	if c.descendants[m.parent]--; c.descendants[m.parent] == 0 {
		delete(c.descendants, m.parent)
		c.updateGang(m.parent)
	}
}

// count adds the indexes of workers to wanted if by is +1, and removes them if by is -1.
func (g *gang) count(workers model.WorkerSet, by int) {
	if g.wanted == nil {
		return
	}
	for id := range workers.All() {
		if g.wanted[id.Index] += by; g.wanted[id.Index] == 0 {
			delete(g.wanted, id.Index)
		}
	}
}

// placementsChanged must be called when workers are added to a task or removed from it, or
// one of them is queued again.
func (c *Core) placementsChanged(t *task) {
	if g := c.reservations[t.uid].adds.gang; g != nil {
		c.membersChanged(g)
	}
}

// hostMoved must be called when the record of an executor is deleted, or its host changes.
func (c *Core) hostMoved(h *host) {
	for g := range h.gangs {
		c.membersChanged(g)
	}
}

// membersChanged drops the members of a gang. If a caller waits for a change, the step
// reports it.
func (c *Core) membersChanged(g *gang) {
	for _, h := range g.places {
		delete(h.gangs, g)
	}
	g.members, g.places = nil, nil
	if c.watched[g.key] {
		c.changedGangs[g.key] = struct{}{}
	}
}

// reportMembers reports the gangs whose members have changed and for which a caller waits. If
// an effect before the report is abandoned, so is the report. The change may remain, for
// example because another service made it, so a later step reports it again.
func (c *Core) reportMembers() {
	if len(c.changedGangs) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(c.changedGangs), model.Key.Compare)
	clear(c.changedGangs)
	for _, key := range keys {
		c.out = append(c.out, MembersChanged{key})
	}
	c.journal.Outcome(func(durable bool) {
		for _, key := range keys {
			if !durable {
				c.changedGangs[key] = struct{}{}
			}
		}
	})
}

// Members returns the members of the gang of a reservation.
func (c *Core) Members(key model.Key) *model.Members {
	g := c.gangs[key]
	if g == nil {
		return noMembers
	}
	if g.members == nil {
		c.readMembers(g)
	}
	return g.members
}

var noMembers = model.NewMembers(0, nil, model.Unplaced{})

// readMembers derives the members of a gang from the tasks of its versions, and from the records of
// those that have none. Of each index, the member is the worker with the highest number that is not
// queued again. A worker whose executor or task was deleted is no member.
func (c *Core) readMembers(g *gang) {
	var workers []versionWorker
	for _, uid := range g.versions {
		workers = appendPast(workers, c.reservations[uid])
		t := c.tasks[uid]
		if t == nil || !t.active() {
			workers = appendRecorded(workers, c.reservations[uid])
			continue
		}
		for _, chunk := range t.chunks {
			for i := range size(chunk) {
				if w := &chunk.Workers[i]; !t.unwanted.Has(w.ID) {
					workers = append(workers, c.versionWorker(t, w))
				}
			}
		}
	}
	slices.SortFunc(workers, func(a, b versionWorker) int {
		return cmp.Or(cmp.Compare(a.id.Index, b.id.Index), cmp.Compare(b.id.Number, a.id.Number),
			cmp.Compare(a.source, b.source))
	})
	list := make([]model.Member, 0, len(workers))
	var unplaced model.Unplaced
	for len(workers) > 0 {
		n := 1
		for n < len(workers) && workers[n].id.Index == workers[0].id.Index {
			n++
		}
		ofIndex := workers[:n]
		workers = workers[n:]
		if !c.wants(g, ofIndex[0].id.Index) {
			continue
		}
		if at := slices.IndexFunc(ofIndex, func(w versionWorker) bool { return w.placedOn != nil }); at >= 0 {
			h := ofIndex[at].placedOn
			list = append(list, model.Member{ID: ofIndex[at].id, Executor: h.record.ID, Host: ofIndex[at].host})
			if h.gangs == nil {
				h.gangs = map[*gang]struct{}{}
			}
			if _, has := h.gangs[g]; !has {
				h.gangs[g] = struct{}{}
				g.places = append(g.places, h)
			}
		}
		index := ofIndex[0].id.Index
		switch standingOf(ofIndex) {
		case waiting:
			unplaced.Waiting = unplaced.Waiting.With(index)
		case ended:
			unplaced.Ended = unplaced.Ended.With(index)
		case givenUp:
			unplaced.GaveUp = unplaced.GaveUp.With(index)
		}
	}
	g.members = model.NewMembers(c.workers(g), list, unplaced)
}

// versionWorker is a worker of a version of a gang.
type versionWorker struct {
	id model.WorkerID
	// placedOn is the executor of a member, and host its host; nil if the worker is no member.
	placedOn *host
	host     string
	standing standing
	source   source
}

// source is where a worker was read. Of the same worker, the first one counts.
type source uint8

const (
	fromTask source = iota
	fromRecord
	fromReplaced
)

// appendRecorded appends the workers of a version that has no task.
func appendRecorded(workers []versionWorker, r reservation) []versionWorker {
	for id := range r.adds.want.All() {
		w := versionWorker{id: id, standing: recordedStanding(r.Reservation, id), source: fromRecord}
		if r.State == model.Replaced {
			w.source = fromReplaced
		}
		workers = append(workers, w)
	}
	return workers
}

// appendPast appends the workers of deleted versions that the record of a version has.
func appendPast(workers []versionWorker, r reservation) []versionWorker {
	if len(r.adds.past) == 0 {
		return workers
	}
	for _, e := range r.Ends.Past {
		if e.Cancelled {
			continue
		}
		for id := range e.Workers.All() {
			workers = append(workers, versionWorker{id: id, standing: standingOfEnd(e, r.Missing.Has(id)), source: fromRecord})
		}
	}
	return workers
}

// recordedStanding returns the standing of a worker of a version without a task.
func recordedStanding(r *model.Reservation, id model.WorkerID) standing {
	switch {
	case !r.State.Terminal():
		return waiting
	case r.State == model.Replaced, len(r.WorkerCounts) == 0, r.Requeued.Has(id):
		return givenUp // a later worker counts, or has ended before it was placed
	case r.Ends != nil:
		for _, e := range r.Ends.Own {
			if e.Workers.Has(id) {
				return standingOfEnd(e, r.Missing.Has(id))
			}
		}
	}
	return ended // COMPLETED, or one of too many to be listed
}

// standingOfEnd returns the standing of workers that ended in a way. missing is set for those that
// ended although nobody requested it.
func standingOfEnd(e model.End, missing bool) standing {
	switch {
	case e.GaveUp, e.State == model.WorkerLost, e.State == model.WorkerUnset, e.State == model.WorkerEvicted && missing:
		return givenUp
	}
	return ended // by itself, or at the end of its lifetime
}

// standing is what the members of a gang may expect of a worker.
type standing uint8

const (
	placedNow standing = iota
	waiting
	ended
	givenUp
)

// standingOf returns the standing of an index, of which at least one worker must be given, the latest
// first. A worker that lives makes the index placed, although a later one may wait.
func standingOf(ofIndex []versionWorker) standing {
	if slices.ContainsFunc(ofIndex, func(w versionWorker) bool { return w.standing == placedNow }) {
		return placedNow
	}
	return ofIndex[0].standing
}

// versionWorker returns a worker of a task as the members of its gang see it, or instead of a worker
// that was queued again the last one that descends from it. A worker in a cell is a member once its
// host is known, or if the agent of the cell is too old to report it.
func (c *Core) versionWorker(t *task, w *model.TaskWorker) versionWorker {
	v := versionWorker{id: w.ID, standing: standingAfter(w.State, w.Reason)}
	ordinal, isMember := w.Ordinal, !w.Requeue
	if w.Later.State != model.WorkerUnset {
		v.id.Number, v.standing, ordinal, isMember = w.Later.Number, standingAfter(w.Later.State, ""), w.Later.Ordinal, true
	}
	h := c.hosts[ordinal]
	isKnown := h != nil && h.record != nil &&
		(!h.record.Cell || w.Host != (model.Interned{}) || w.State >= model.WorkerRunning)
	if isMember && isKnown {
		v.placedOn, v.host = h, cmp.Or(w.Host.String(), h.record.DialHost())
	}
	switch {
	case !w.State.Terminal() && v.placedOn == nil, t.header.Withdrawn && w.State.Terminal():
		v.standing = waiting // its host is not known, or it is LOST soon, or the batch is queued again
	case isMember:
	case c.reservations[t.uid].Requeued.Has(w.ID), c.reservations[t.uid].Missing.Has(w.ID):
		v.standing = givenUp // a later worker counts, has ended before it was placed, or is not queued
	default:
		v.standing = waiting // the registry queues it soon
	}
	return v
}

// standingAfter returns the standing of a worker in a state for a reason that is not queued again.
func standingAfter(state model.WorkerState, reason fault.Reason) standing {
	switch {
	case !state.Terminal():
		return placedNow
	case reason == fault.ReasonLifetime, state == model.WorkerCompleted:
		return ended
	case state == model.WorkerFailed && reason != fault.ReasonAttemptsExhausted && reason != fault.ReasonExecutorRefuses &&
		reason != fault.ReasonRoundsExhausted && reason != fault.ReasonCellWorkerLost:
		return ended
	}
	return givenUp
}

// laterWorker returns the worker of the same index in the version from which a requeue descends, with
// the end of the worker of the requeue. It reports false if that worker has not ended or is queued again,
// or if this is recorded already.
func (c *Core) laterWorker(requeue *task, w *model.TaskWorker) (parent *task, at slot, next model.TaskWorker,
	changed bool) {
	r := c.reservations[requeue.uid]
	if r.Reservation == nil || r.Origin != model.OriginRequeue || !w.State.Terminal() || w.Requeue {
		return nil, slot{}, next, false
	}
	number, known := c.reservations[r.Parent].workers().Number(w.ID.Index)
	if parent = c.tasks[r.Parent]; parent == nil || !known {
		return nil, slot{}, next, false
	}
	at, known = parent.find(model.WorkerID{Index: w.ID.Index, Number: number})
	if !known {
		return nil, slot{}, next, false
	}
	next = c.read(parent, at)
	later := model.LastWorker{State: w.State, Number: w.ID.Number, Ordinal: w.Ordinal}
	switch standing := standingAfter(w.State, w.Reason); {
	case standing == givenUp:
		later.State = model.WorkerLost
	case standing == ended && w.State == model.WorkerEvicted:
		later.State = model.WorkerCompleted // its lifetime was over
	}
	if changed = next.Later.Number < later.Number; changed {
		next.Later, next.Host = later, w.Host
	}
	return parent, at, next, changed
}

// MayListMembers returns an error unless the agent with an incarnation and a nonce is that of
// the executor, and the executor has a worker of the gang.
func (c *Core) MayListMembers(executor string, incarnation int64, nonce Nonce, key model.Key) error {
	ordinal, known := c.ordinals[executor]
	if !known {
		return fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %q", executor)
	}
	h := c.hosts[ordinal]
	switch {
	case h.record.Incarnation != incarnation:
		return fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"the request is for incarnation %d of %s, which has incarnation %d", incarnation, executor, h.record.Incarnation)
	case !h.record.Proves(string(nonce)):
		return fault.New(fault.Denied, fault.ReasonPermissionDenied,
			"the request does not carry the nonce of the registration of %s", executor)
	case !slices.ContainsFunc(h.placed, func(p placed) bool { return c.tasks[p.uid].header.Key == key }):
		return fault.New(fault.NotFound, fault.ReasonNotFound, "%s has no worker of %s", executor, key)
	}
	return nil
}

// maxWatched bounds the keys in watched. It is higher than the number of callers that wait.
const maxWatched = 100_000

// Watch makes the core report a change of the members of a reservation as MembersChanged,
// until Unwatch. waits reports whether a caller still waits for a change of a reservation:
// the core forgets the reservations of callers that have left when there are many of them.
func (c *Core) Watch(key model.Key, waits func(model.Key) bool) {
	if len(c.watched) >= maxWatched {
		maps.DeleteFunc(c.watched, func(key model.Key, _ bool) bool { return !waits(key) })
	}
	c.watched[key] = true
}

// Unwatch ends Watch. It must be called when a MembersChanged is carried out: a caller that
// still waits calls Watch again.
func (c *Core) Unwatch(key model.Key) { delete(c.watched, key) }
