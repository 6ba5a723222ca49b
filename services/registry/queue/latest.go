package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// takeRequest makes the record of a version that is not dispatched take the latest request for
// the reservation, as far as request.Take says. With another task its restarts begin anew: it
// has no failures and no delay, and avoids no executor because of the earlier task.
func takeRequest(next *model.Reservation) {
	latest := next.Latest
	if latest == nil {
		return
	}
	before := next.Spec
	next.Spec = request.Take(&before, &latest.Spec)
	if next.Spec.Lifetime != before.Lifetime {
		next.LifetimeEnd = request.LifetimeEnd(next.Spec.Lifetime, latest.At)
	}
	next.LatestTarget = nil
	if request.Differences(&next.Spec, &before)&request.Task != 0 {
		next.Failures, next.FailedFor = 0, ""
		next.Failed = slices.DeleteFunc(slices.Clone(next.Failed), func(f model.FailedOn) bool { return f.BadTask })
		if next.Round > 0 {
			next.NotBefore = time.Time{}
		}
	}
	if request.Differences(&next.Spec, &latest.Spec) == 0 && latest.Count == 0 && len(latest.Workers) == 0 {
		next.Latest = nil
	}
}

// takesLatest reports whether a version is not dispatched and differs from the latest request
// in what it takes. That happens if its task was withdrawn before it was complete.
func takesLatest(v *version) bool {
	if !v.is(model.Queued) || v.header != nil || v.accepted || v.r.Latest == nil || v.keepsBind() {
		return false
	}
	taken := request.Take(&v.r.Spec, &v.r.Latest.Spec)
	return request.Differences(&taken, &v.r.Spec) != 0
}

// takeLatest adds to an effect that a version which is not dispatched takes the latest request
// of its next record. With the same constraints it keeps its uid, lease and place, unless it is queued
// again BY_ORDER instead of FIRST. With others it is replaced by a version at the tail. It returns
// the record that continues.
func (c *Core) takeLatest(effect *model.Effect, v *version, next *model.Reservation) *model.Reservation {
	before := next.Spec.Constraints
	takeRequest(next)
	if request.SameConstraints(next.Spec.Constraints, before) {
		if v.r.RequeuedFirst() && !next.RequeuedFirst() {
			next.Place, next.PlaceEpoch, next.RefusedEpoch = c.placedBy(v.r).Place, c.orderedEpoch(v.r), 0
		}
		effect.Puts = append(effect.Puts, next)
		effect.Expect = append(effect.Expect, noTask(v.uid))
		return next
	}
	c.finish(effect, v, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, "")
	next = c.newVersion(next)
	next.Place, next.PlaceEpoch, next.RefusedEpoch = c.newPlace(), 0, 0
	effect.Puts = append(effect.Puts, next)
	effect.Events = append(effect.Events, c.event(model.EventReservationQueued, next))
	return next
}

// wantedWorkers is a request for workers that are not those of the reservation; zero if they
// are.
type wantedWorkers struct {
	count   int32
	workers model.WorkerSet
}

// otherWorkers returns the workers of an upsert if the reservation is not shown with exactly them, or if
// they are those of the latest request, which stay requested once the others have ended. l has no version
// that the upsert replaces. So an upsert is always shown with the workers that it was sent: those of the
// reservation, or the requested ones.
func (c *Core) otherWorkers(l living, u model.Upsert) wantedWorkers {
	if request.SameWorkers(u, c.shownWith(l, u.Key)) && !c.repeatsWorkers(u, l) {
		return wantedWorkers{}
	}
	return wantedWorkers{u.Count, model.WorkerSetOf(u.Workers)}
}

// shownWith returns the workers with which a reservation is shown once its living versions are those of l.
func (c *Core) shownWith(l living, key model.Key) model.WorkerSet {
	r := c.reservationOf(key)
	sets := pastSets(r.past, nil)
	for _, v := range l.queued {
		sets = append(sets, v.r.Workers)
	}
	for _, v := range r.members {
		if !v.isReplaceable() { // one that l does not have is replaced
			sets = append(sets, v.r.Workers)
		}
	}
	return unionOf(sets)
}

// requestedWorkers returns the workers of the latest request for the reservation of a version, if they are
// not those of the reservation. Each version has a count. One version has a list, because it may be large and
// a reservation may have many versions; it may have ended.
//
// Versions that are about to be replaced do not count.
func (c *Core) requestedWorkers(r *model.Reservation, replaced ...*version) wantedWorkers {
	for _, v := range c.byKey[r.Key] {
		if c.hasList(v, r) && !slices.Contains(replaced, v) {
			return wantedWorkers{workers: v.r.Latest.Workers}
		}
	}
	return wantedWorkers{count: requestedIn(r.Latest).count}
}

// requestedIn returns the workers that a latest request has.
func requestedIn(latest *model.Latest) wantedWorkers {
	if latest == nil {
		return wantedWorkers{}
	}
	return wantedWorkers{latest.Count, latest.Workers}
}

// hasList reports whether a version has the listed workers of the latest request for the reservation of r.
// A version that replaces another one has its list.
func (c *Core) hasList(v *version, r *model.Reservation) bool {
	return v.r.Latest != nil && len(v.r.Latest.Workers) > 0 && !v.is(model.Replaced) && c.first(v.r) == c.first(r)
}

// dropLists adds to an effect that no version has the listed workers of the latest request any more, except
// for those that the effect stores anyway.
func (c *Core) dropLists(effect *model.Effect, l living) {
	for _, v := range c.byKey[l.newest.r.Key] {
		if c.hasList(v, l.newest.r) && !slices.Contains(l.all(), v) {
			next := c.edit(v.r)
			next.Latest = withoutList(next.Latest)
			effect.Puts = append(effect.Puts, next)
		}
	}
}

// withoutList returns a latest request without its listed workers.
func withoutList(latest *model.Latest) *model.Latest {
	if latest == nil || len(latest.Workers) == 0 {
		return latest
	}
	next := *latest
	next.Workers, next.Adds = nil, false
	return &next
}

func (w wantedWorkers) isSet() bool { return w.count != 0 || len(w.workers) > 0 }

func (w wantedWorkers) equal(o wantedWorkers) bool {
	return w.count == o.count && w.workers.Equal(o.workers)
}

// otherRequest has the workers of an upsert and those of the latest request before it. Both are
// zero if they are those of the reservation.
type otherRequest struct{ wants, has wantedWorkers }

// storedIn returns the requested workers that a version stores. The list goes to the version that
// represents the key, unless some version has it.
func (o otherRequest) storedIn(before wantedWorkers, represents bool) wantedWorkers {
	stored := wantedWorkers{count: o.wants.count}
	switch {
	case len(o.wants.workers) == 0:
	case o.wants.equal(o.has):
		stored.workers = before.workers
	case represents:
		stored.workers = o.wants.workers
	}
	return stored
}

// noTaskRequested is the fingerprint of a request without a task.
var noTaskRequested = request.TaskFingerprint(model.Task{})

// updated returns the record of a living version with what an upsert stores in it, and the
// fields in which the upsert differs from the latest request of the version. The version that
// represents the key also has the target size, and the listed workers.
func (c *Core) updated(v *version, u *model.Upsert, other otherRequest,
	represents bool) (*model.Reservation, request.Fields) {
	spec := request.SpecFor(u, v.r)
	changed := request.Differences(spec, v.r.Requested()) &^ request.FieldTargetSize
	retargets := represents && request.LatestTarget(v.r) != spec.TargetSize
	if retargets {
		changed |= request.FieldTargetSize
	}
	before := requestedIn(v.r.Latest)
	stored := other.storedIn(before, represents)
	if !stored.equal(before) || represents && !other.wants.equal(other.has) {
		changed |= request.WorkersOf(*u)
	}
	if changed == 0 {
		return v.r, 0
	}
	next := c.edit(v.r)
	next.Spec.Priority, next.Spec.Labels, next.Spec.ExpireAt = spec.Priority, spec.Labels, spec.ExpireAt
	next.Spec.Shrink = spec.Shrink
	if !spec.Priority.Equal(v.r.Spec.Priority) {
		takeOrder(next)
	}
	if retargets {
		next.LatestTarget = new(spec.TargetSize)
	}
	if changed&request.Task != 0 && !next.BoundAt.IsZero() {
		next.RequestedTask = noTaskRequested // any task is now that of the request
	}
	next.Latest = nil
	if request.Differences(spec, &v.r.Spec)&^request.InPlace != 0 || stored.isSet() {
		next.Latest = &model.Latest{Spec: *spec, At: c.now, Count: stored.count, Workers: stored.workers,
			Adds: len(stored.workers) > 0 && c.hasExactly(v, stored.workers)}
		if v.r.Latest != nil && v.r.Latest.Spec.Lifetime == spec.Lifetime {
			next.Latest.At = v.r.Latest.At
		}
	}
	return next, changed
}

// keepRequest begins the effect that ends a version which may vanish from its reservation, because its
// workers never had executors. If the reservation lives on, its versions store which workers were requested,
// because those that are left are fewer.
func (c *Core) keepRequest(v *version) (effect model.Effect) {
	others := slices.DeleteFunc(c.living(v.r.Key).all(), func(o *version) bool { return o == v })
	if len(others) == 0 || !c.mayVanish(v) || c.requestedWorkers(v.r).isSet() {
		return effect
	}
	requested := c.reservationOf(v.r.Key).newest
	count := int32(requested.Len())
	isCount := request.SameWorkers(model.Upsert{Count: count}, requested)
	newest := representative(others)
	for _, o := range others {
		if !isCount && o != newest { // one version has the list
			continue
		}
		next := c.edit(o.r)
		latest := c.latestOf(next)
		if isCount {
			latest.Count = count
		} else {
			latest.Workers, latest.Adds = requested, false
		}
		next.Latest = &latest
		c.makeRoom(&effect)
		effect.Puts = append(effect.Puts, next)
	}
	return effect
}

// latestOf returns a copy of the latest request for a version, which may be its own.
func (c *Core) latestOf(r *model.Reservation) model.Latest {
	if r.Latest != nil {
		return *r.Latest
	}
	return model.Latest{Spec: r.Spec, At: c.now}
}

// keepList stores the listed workers of the latest request in the version that represents the key, if the
// version that has them is about to be forgotten while the reservation lives. It reports whether it did.
func (c *Core) keepList(v *version) bool {
	newest := c.living(v.r.Key).newest
	if newest == nil || !c.hasList(v, newest.r) {
		return false
	}
	for _, o := range c.byKey[v.r.Key] {
		if o != v && !o.r.State.Terminal() && c.hasList(o, newest.r) {
			return false
		}
	}
	next := c.edit(newest.r)
	latest := c.latestOf(next)
	latest.Workers, latest.Adds = v.r.Latest.Workers, v.r.Latest.Adds
	next.Latest = &latest
	c.decide(model.Effect{Puts: []model.Record{next}})
	return true
}

// store adds the record of a living version with what an upsert stores in it to an effect. A
// version that is queued again and not dispatched takes the request. It returns the record that continues.
func (c *Core) store(effect *model.Effect, l living, v *version, next *model.Reservation) *model.Reservation {
	if slices.Contains(l.requeues, v) || v.isRound() || v.isBound() && !v.started() && !v.keepsBind() {
		return c.takeLatest(effect, v, next)
	}
	effect.Puts = append(effect.Puts, next)
	return next
}

// latestView returns a view of a version with the body of the latest request for the
// reservation. Without a list it also has to which workers the fields of the request apply, and
// the fields that an upsert changed.
func (c *Core) latestView(view View, changed request.Fields, forList bool) View {
	r := view.Reservation
	view.BoundTask = !r.BoundAt.IsZero() && r.RequestedTask != request.TaskFingerprint(r.Spec.Task)
	if r.Latest != nil {
		shown := *r
		shown.Spec, shown.LatestTarget = r.Latest.Spec, nil
		view.Reservation = &shown
	}
	if !r.State.Terminal() {
		requested := c.requestedWorkers(r)
		view.RequestedCount, view.RequestedWorkers = requested.count, requested.workers
	}
	if !forList {
		view.FieldResults = c.fieldResults(r.Key, changed)
	}
	return view
}

// fieldResults returns the fields of the latest request for a key that do not apply to all
// workers, and the changed fields.
func (c *Core) fieldResults(key model.Key, changed request.Fields) (results []model.FieldResult) {
	if changed == 0 && !slices.ContainsFunc(c.byKey[key], func(v *version) bool { return v.r.Latest != nil }) {
		return nil
	}
	l := c.living(key)
	var bare model.WorkerSet // without a volume
	// later has the workers that keep the earlier value of a field, and never those whose index never gets
	// the new one.
	later, never := map[request.Fields]model.WorkerSet{}, map[request.Fields]model.WorkerSet{}
	for _, v := range l.all() {
		workers := v.unended()
		if v.r.Latest == nil || len(workers) == 0 {
			continue
		}
		latest := &v.r.Latest.Spec
		taken := request.Take(&v.r.Spec, latest)
		if v.r.Spec.Volume == nil {
			bare = bare.Raise(workers)
		}
		for field := range (request.Differences(latest, &v.r.Spec) &^ request.InPlace).All() {
			later[field] = later[field].Raise(workers)
		}
		for field := range (request.Differences(latest, &taken) &^ request.InPlace).All() {
			never[field] = never[field].Raise(workers)
		}
	}
	if l.newest != nil {
		maps.Copy(never, c.beyond(l))
	}
	for field := range (request.AllFields).All() {
		result := model.FieldResult{Field: field.Names()[0], Applies: model.AppliesNow}
		switch {
		case len(never[field]) > 0:
			result.Applies, result.Message = model.AppliesNot, notApplied(field, never[field], bare, l.newest.r)
		case len(later[field]) > 0:
			result.Applies = model.AppliesLater
			result.Message = fmt.Sprintf("%s the earlier value; workers that Berth starts later have the new one",
				doText(later[field], "keep"))
		case !changed.Has(field):
			continue
		}
		results = append(results, result)
	}
	return results
}

// unended returns the wanted workers of a living version that have not ended.
func (v *version) unended() model.WorkerSet {
	if v.header != nil && v.header.Ended {
		return nil
	}
	return without(v.wanted(), v.endedWorkers())
}

// beyond returns the workers that have not ended and that the latest request for a key does not
// want, by the field that names the wanted ones.
func (c *Core) beyond(l living) map[request.Fields]model.WorkerSet {
	requested := c.requestedWorkers(l.newest.r)
	if !requested.isSet() || c.onlyAdded(l) {
		return nil
	}
	field := request.FieldWorkers
	if requested.count > 0 {
		field = request.FieldCount
	}
	var others []model.WorkerID
	for workerID := range union(l.all(), (*version).unended).All() {
		_, named := requested.workers.Number(workerID.Index)
		if requested.count > 0 && workerID.Index >= requested.count || requested.count == 0 && !named {
			others = append(others, workerID)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return map[request.Fields]model.WorkerSet{field: model.WorkerSetOf(others)}
}

// onlyAdded reports whether the latest request lists workers that it added to those of other versions.
func (c *Core) onlyAdded(l living) bool {
	return slices.ContainsFunc(c.byKey[l.newest.r.Key], func(v *version) bool {
		return c.hasList(v, l.newest.r) && v.r.Latest.Adds
	})
}

// hasExactly reports whether a version and those that derive from it or from which it derives have exactly
// some workers.
func (c *Core) hasExactly(v *version, workers model.WorkerSet) bool {
	root := c.root(v)
	family := slices.DeleteFunc(slices.Clone(c.byKey[v.r.Key]), func(o *version) bool { return c.root(o) != root })
	have := union(family, func(o *version) model.WorkerSet { return o.r.Workers })
	return have.Len() == workers.Len() && workers.Raise(have).Equal(have)
}

// notApplied says why a field of the latest request never applies to some workers, and what to do. bare
// are those without a volume, and newest represents the key.
func notApplied(field request.Fields, workers, bare model.WorkerSet, newest *model.Reservation) string {
	const again = "cancel the reservation and request it again"
	switch field {
	case request.FieldCount, request.FieldWorkers:
		them := "them"
		if workers.Len() == 1 {
			them = "it"
		}
		why := "an upsert stops no worker unless shrink is STOP_HIGHEST: set that and targetSize"
		if newest.Requested().Shrink == model.ShrinkHighest {
			why = fmt.Sprintf("targetSize is %d: lower it", request.LatestTarget(newest))
		}
		return fmt.Sprintf("%s, because %s, or cancel %s with workers:cancel", doText(workers, "stay"), why, them)
	case request.FieldVolume:
		var texts []string
		with := without(workers, bare)
		if len(with) > 0 {
			volumes := "its volume"
			if with.Len() > 1 {
				volumes = "their volumes"
			}
			texts = append(texts, fmt.Sprintf("%s %s, which cannot be changed: %s, and delete the volumes",
				doText(with, "keep"), volumes, again))
		}
		if less := without(workers, with); len(less) > 0 {
			texts = append(texts, fmt.Sprintf("%s without a volume, and with the earlier task: %s", doText(less, "run"),
				again))
		}
		return strings.Join(texts, "; ")
	}
	return fmt.Sprintf("%s the earlier value, which cannot change after the grant: %s", doText(workers, "keep"),
		again)
}

// doText names workers and what they do.
func doText(workers model.WorkerSet, verb string) string {
	if workers.Len() == 1 {
		verb += "s"
	}
	return workersText(workers) + " " + verb
}

// workersText names workers: at most three runs of them.
func workersText(workers model.WorkerSet) string {
	const most = 3
	var runs []string
	for i, run := range workers {
		if i == most {
			runs = append(runs, fmt.Sprintf("and %d more", workers[i:].Len()))
			break
		}
		text := model.WorkerID{Index: run.First, Number: run.Number}.String()
		if run.Last > run.First {
			text += " to " + model.WorkerID{Index: run.Last, Number: run.Number}.String()
		}
		runs = append(runs, text)
	}
	noun := "workers "
	if workers.Len() == 1 {
		noun = "worker "
	}
	return noun + strings.ReplaceAll(strings.Join(runs, ", "), ", and", " and")
}

// admitUpdate rejects an upsert that queues no worker, if its records would be too large or
// beyond a limit, or if the tenant of the job may not have what it requests.
func (c *Core) admitUpdate(u model.Upsert, updates []update) error {
	t, stage := c.tenants.Of(u.Key.Job), c.stage(u.Key)
	var more int64
	var versions, elsewhere []*version
	for _, up := range updates {
		if err := request.CheckStored(up.next, &stage); err != nil {
			return err
		}
		more += int64(request.Size(up.next)) - up.v.stored.bytes
		versions = append(versions, up.v)
		if up.changed&request.Constraints != 0 {
			elsewhere = append(elsewhere, up.v)
		}
	}
	if len(updates) == 0 {
		return nil
	}
	err := cmp.Or(c.checkPriority(u, versions), c.checkTenantBytes(t, more, more <= 0),
		c.checkLimits(u.Key.Job, usage{bytes: more}, c.config.MaxStoredPerJob, c.config.MaxStored))
	if err == nil && t != nil && len(elsewhere) > 0 {
		err = checkNames(t, u, elsewhere)
	}
	return err
}
