package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// takeRequest makes the record of a version that is not dispatched take the latest request for
// the reservation, as far as request.Take says. With another task its restarts begin anew: it
// has no failures and no delay.
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
		next.Failures = 0
		if next.Origin == model.OriginRequeue {
			next.NotBefore = time.Time{}
		}
	}
	if request.Differences(&next.Spec, &latest.Spec) == 0 && latest.Count == 0 && len(latest.Workers) == 0 {
		next.Latest = nil
	}
}

// takesLatest reports whether a version is not dispatched and differs from the latest request
// in what it takes. That happens if its task was withdrawn before it was complete. A bound
// version keeps what its bind started.
func takesLatest(v *version) bool {
	if !v.is(model.Queued) || v.header != nil || v.accepted || v.r.Latest == nil ||
		v.isBound() && v.r.Origin != model.OriginRequeue {
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
			next.PlaceEpoch = c.orderedEpoch(v.r)
		}
		effect.Puts = append(effect.Puts, next)
		effect.Expect = append(effect.Expect, noTask(v.uid))
		return next
	}
	c.finish(effect, v, model.Replaced, model.EventReservationReplaced, fault.ReasonReplaced, "")
	next = c.newVersion(next)
	next.Place, next.PlaceEpoch = c.newPlace(), 0
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

// otherWorkers returns the workers of an upsert if they are not those of the living versions, if
// they are those of the latest request, which stay requested once the others have ended, or if the
// reservation is shown with more. l has no version that the upsert replaces.
func (c *Core) otherWorkers(l living, u model.Upsert) wantedWorkers {
	if c.hasWorkersOf(l, u) && !repeatsWorkers(u, l.newest.r) && !c.showsMore(l, u.Key, u.Count) {
		return wantedWorkers{}
	}
	return wantedWorkers{u.Count, model.WorkerSetOf(u.Workers)}
}

// showsMore reports whether a reservation is shown with indexes beyond a count, which belong to workers
// that have ended or were cancelled.
func (c *Core) showsMore(l living, key model.Key, count int32) bool {
	if count == 0 || len(c.byKey[key]) == 0 {
		return false
	}
	r := c.reservationOf(key)
	beyond := func(workers model.WorkerSet) bool {
		return len(workers) > 0 && workers[len(workers)-1].Last >= count
	}
	return slices.ContainsFunc(pastSets(r.past, nil), beyond) || slices.ContainsFunc(r.members, func(v *version) bool {
		replaced := v.is(model.Queued) && v.r.Origin != model.OriginRequeue && !v.isBound() && !slices.Contains(l.queued, v)
		return beyond(v.r.Workers) && !replaced
	})
}

func requestedWorkers(r *model.Reservation) wantedWorkers {
	if r.Latest == nil {
		return wantedWorkers{}
	}
	return wantedWorkers{r.Latest.Count, r.Latest.Workers}
}

func (w wantedWorkers) isSet() bool { return w.count != 0 || len(w.workers) > 0 }

func (w wantedWorkers) equal(o wantedWorkers) bool {
	return w.count == o.count && w.workers.Equal(o.workers)
}

// ofOthers returns what the versions store that do not represent the key: the count, so that it
// stays requested once the version that represents the key has ended. Sets of workers may be large,
// and a reservation may have many versions.
func (w wantedWorkers) ofOthers() wantedWorkers { return wantedWorkers{count: w.count} }

// updated returns the record of a living version with what an upsert stores in it, and the
// fields in which the upsert differs from the latest request of the version. others are the
// workers that the version stores. The version that represents the key also has the target size.
func (c *Core) updated(v *version, u *model.Upsert, others wantedWorkers,
	represents bool) (*model.Reservation, request.Fields) {
	spec := request.SpecFor(u, v.r)
	changed := request.Differences(spec, v.r.Requested()) &^ request.FieldTargetSize
	retargets := represents && request.LatestTarget(v.r) != spec.TargetSize
	if retargets {
		changed |= request.FieldTargetSize
	}
	if !others.equal(requestedWorkers(v.r)) {
		changed |= request.WorkersOf(*u)
	}
	if changed == 0 {
		return v.r, 0
	}
	next := c.edit(v.r)
	next.Spec.Priority, next.Spec.Labels, next.Spec.ExpireAt = spec.Priority, spec.Labels, spec.ExpireAt
	if retargets {
		next.LatestTarget = new(spec.TargetSize)
	}
	next.Latest = nil
	if request.Differences(spec, &v.r.Spec)&^request.InPlace != 0 || others.isSet() {
		next.Latest = &model.Latest{Spec: *spec, At: c.now, Count: others.count, Workers: others.workers}
		if v.r.Latest != nil && v.r.Latest.Spec.Lifetime == spec.Lifetime {
			next.Latest.At = v.r.Latest.At
		}
	}
	return next, changed
}

// store adds the record of a living version with what an upsert stores in it to an effect. A
// requeue that is not dispatched takes the request. It returns the record that continues.
func (c *Core) store(effect *model.Effect, l living, v *version, next *model.Reservation) *model.Reservation {
	if slices.Contains(l.requeues, v) {
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
		view.Reservation, view.RequestedCount, view.RequestedWorkers = &shown, r.Latest.Count, r.Latest.Workers
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
	var never request.Fields
	keep := map[request.Fields]model.WorkerSet{}
	for _, v := range l.all() {
		workers := v.unended()
		if v.r.Latest == nil || len(workers) == 0 {
			continue
		}
		latest := &v.r.Latest.Spec
		taken := request.Take(&v.r.Spec, latest)
		never |= request.Differences(latest, &taken)
		for field := range (request.Differences(latest, &v.r.Spec) &^ request.InPlace).All() {
			keep[field] = keep[field].Raise(workers)
		}
	}
	if l.newest != nil {
		for field, workers := range beyond(l) {
			keep[field], never = workers, never|field
		}
	}
	for field := range (request.AllFields).All() {
		result := model.FieldResult{Field: field.Names()[0], Applies: model.AppliesNow}
		workers, keeps := keep[field]
		switch {
		case keeps && never.Has(field):
			result.Applies, result.Message = model.AppliesNot, notApplied(field, workers)
		case keeps:
			result.Applies = model.AppliesLater
			result.Message = fmt.Sprintf("%s the earlier value; workers that Berth starts later have the new one",
				keepText(workers))
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
func beyond(l living) map[request.Fields]model.WorkerSet {
	requested := requestedWorkers(l.newest.r)
	if !requested.isSet() {
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

// notApplied says why a field of a request applies to no worker, and what to do.
func notApplied(field request.Fields, workers model.WorkerSet) string {
	const again = "cancel the reservation and request it again"
	switch field {
	case request.FieldCount, request.FieldWorkers:
		verb := "stay"
		if workers.Len() == 1 {
			verb = "stays"
		}
		return fmt.Sprintf("%s %s, because an upsert stops no worker: cancel %s with workers:cancel", workersText(workers), verb,
			map[bool]string{true: "it", false: "them"}[workers.Len() == 1])
	case request.FieldVolume:
		return fmt.Sprintf("%s its volume, which cannot be changed: %s, and delete the volumes",
			strings.Replace(keepText(workers), "keep ", "keep each ", 1), again)
	}
	return fmt.Sprintf("%s the earlier value, which cannot change after the grant: %s", keepText(workers), again)
}

func keepText(workers model.WorkerSet) string {
	if workers.Len() == 1 {
		return workersText(workers) + " keeps"
	}
	return workersText(workers) + " keep"
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
