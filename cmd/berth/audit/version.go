package audit

import (
	"cmp"
	"maps"
	"math"
	"reflect"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// version has all records of one uid.
type version struct {
	uid string
	key model.Key
	r   *model.Reservation
	// group is the ID of the version's queue. A split of a reservation with a volume changes
	// it. While the version is queued, positions has all its ranks since it was accepted.
	group     string
	positions []position

	offer offer

	lease map[int32]*model.LeaseChunk
	// leased is the revision of the grant. It stays set after the lease is deleted.
	leased int64

	header *model.TaskHeader
	tasks  map[int32]*model.TaskChunk
	// givenUp has the workers that were given up although their executor may still start or run
	// them. They stay so once it has confirmed the end.
	givenUp map[model.WorkerID]bool
	// complete stays set after the header is deleted.
	complete bool

	// touched is set if this revision changes a record of the uid. was is then the
	// reservation before this revision.
	was     *model.Reservation
	touched bool
}

// touch returns the version of a uid and marks it as changed by this revision.
func (a *Auditor) touch(uid string) *version {
	v := a.versions[uid]
	if v == nil {
		v = &version{uid: uid, lease: map[int32]*model.LeaseChunk{}, tasks: map[int32]*model.TaskChunk{}}
		a.versions[uid] = v
	}
	if !v.touched {
		v.touched, v.was = true, v.r
		a.step.touched = append(a.step.touched, v)
	}
	return v
}

// before returns the reservation before this revision.
func (v *version) before() *model.Reservation {
	if v.touched {
		return v.was
	}
	return v.r
}

// empty reports whether all records of the uid are deleted.
func (v *version) empty() bool {
	return v.r == nil && v.header == nil && len(v.lease) == 0 && len(v.tasks) == 0 &&
		v.offer.record == nil
}

// queued reports whether the version is in its queue.
func (v *version) queued() bool {
	return v.r != nil && v.r.State == model.Queued && v.leased == 0 && v.header == nil &&
		!v.isHeldByCells()
}

// unfinished reports whether the reservation exists and has not ended.
func (v *version) unfinished() bool { return v.r != nil && !v.r.State.Terminal() }

// stopping reports whether a worker is being stopped because it was cancelled, alone or
// with its reservation.
func (v *version) stopping(workerID model.WorkerID) bool {
	return v.r == nil || v.r.State == model.Cancelling || v.r.State == model.Cancelled || v.r.Unwanted.Has(workerID)
}

func (v *version) String() string { return v.key.String() + " (uid " + v.uid + ")" }

// placements returns the workers of the lease in the order of its chunks.
func (v *version) placements() []model.Placement {
	var all []model.Placement
	for _, n := range slices.Sorted(maps.Keys(v.lease)) {
		all = append(all, v.lease[n].Workers...)
	}
	return all
}

// placed returns the ordinal of the executor on which the lease places a worker. The workers
// of each chunk are sorted by ID.
func (v *version) placed(workerID model.WorkerID) (ordinal uint32, ok bool) {
	for _, chunk := range v.lease {
		at, found := slices.BinarySearchFunc(chunk.Workers, workerID, func(p model.Placement, workerID model.WorkerID) int {
			return p.Worker.Compare(workerID)
		})
		if found {
			return chunk.Workers[at].Ordinal, true
		}
	}
	return 0, false
}

// assignment returns the task's record of a worker. The workers of each chunk are sorted by
// ID.
func (v *version) assignment(workerID model.WorkerID) (model.TaskWorker, bool) {
	for _, chunk := range v.tasks {
		at, found := slices.BinarySearchFunc(chunk.Workers, workerID, func(w model.TaskWorker, workerID model.WorkerID) int {
			return w.ID.Compare(workerID)
		})
		if found {
			return chunk.Workers[at], true
		}
	}
	return model.TaskWorker{}, false
}

// workersEnded reports whether every worker of the task has ended.
func (v *version) workersEnded() bool {
	for _, chunk := range v.tasks {
		if slices.ContainsFunc(chunk.Workers, func(w model.TaskWorker) bool { return !w.State.Terminal() }) {
			return false
		}
	}
	return true
}

// mayRun reports whether a worker of the task is LOST and not confirmed: it keeps its share of the
// lease, and the task, after its reservation has ended.
func (v *version) mayRun() bool {
	for _, chunk := range v.tasks {
		if slices.ContainsFunc(chunk.Workers, func(w model.TaskWorker) bool { return w.Unconfirmed }) {
			return true
		}
	}
	return false
}

// leaseOver reports whether nothing is leased to the version except to such workers.
func (v *version) leaseOver() bool {
	for _, p := range v.placements() {
		if w, _ := v.assignment(p.Worker); !w.Unconfirmed {
			return false
		}
	}
	return true
}

// setReservation applies the change of a reservation.
func (a *Auditor) setReservation(ref model.Ref, next *model.Reservation) {
	v := a.touch(ref.ID)
	v.key = ref.Key
	prev := v.r
	a.leaveQueue(v)
	v.r = next
	a.checkReservation(v, prev, next)
	if next != nil {
		v.group = next.Group()
		if prev != nil && (!prev.NotBefore.Equal(next.NotBefore) || prev.Group() != next.Group()) {
			v.positions = v.positions[:0] // it enters its queue now, and not earlier
		}
		if next.State == model.Queued {
			v.setPosition(next)
		}
	}
	a.enterQueue(v)
}

func (a *Auditor) checkReservation(v *version, prev, next *model.Reservation) {
	switch {
	case next == nil:
		if prev != nil && !prev.State.Terminal() && !a.step.jump {
			a.violate(RuleNeverLost, "%s was deleted while %s", v, prev.State)
		}
		return
	case prev == nil:
		a.stats.Reservations++
		a.step.accepted = append(a.step.accepted, v)
		// One transaction may accept a reservation and end it.
		began := next.State == model.Queued || next.State == model.Cancelled || next.State == model.Replaced ||
			next.State == model.Expired
		if !began && !a.step.jump {
			a.violate(RuleReservationState, "%s began as %s", v, next.State)
		}
	case prev.State.Terminal() && next.State != prev.State, progress(next.State) < progress(prev.State):
		a.violate(RuleReservationState, "%s went from %s to %s", v, prev.State, next.State)
	case !prev.State.Terminal() && next.State.Terminal() && !v.workersEnded() && !a.step.jump:
		a.violate(RuleReservationState, "%s became %s before its workers ended", v, next.State)
	case !prev.Workers.Equal(next.Workers):
		a.step.split = append(a.step.split, split{v, prev.Workers})
	case prev.Spec.Constraints.Canonical() != next.Spec.Constraints.Canonical():
		a.violate(RuleImmutable, "%s changed its constraints", v)
	case (prev.State != model.Queued || v.header != nil) && !sameRequest(&prev.Spec, &next.Spec):
		a.violate(RuleImmutable, "%s changed the request with which its workers were dispatched", v)
	}
	if prev != nil && (!prev.Unwanted.SubsetOf(next.Unwanted) || !next.Unwanted.SubsetOf(next.Workers)) {
		a.violate(RuleImmutable, "%s revived cancelled workers, or cancels workers that it does not have", v)
	}
	a.checkBind(v, prev, next)
	if prev != nil && !prev.Requeued.Equal(next.Requeued) {
		a.step.requeued = append(a.step.requeued, requeued{v, prev.Requeued})
	}
	if prev != nil && prev.State == model.Queued && next.State == model.Expired &&
		next.Reason == fault.ReasonQueueTimeout && next.Granted {
		a.violate(RuleReservationState, "%s expired after its queueTimeout, although its workers had executors before", v)
	}
	if progress(next.State) < 0 {
		a.violate(RuleReservationState, "%s is stored as %s, which is derived", v, next.State)
	}
}

// sameRequest reports whether two versions start and restart their workers in the same way.
func sameRequest(a, b *model.Spec) bool {
	return reflect.DeepEqual(a.Task, b.Task) && a.Start == b.Start && a.OnFailure == b.OnFailure &&
		a.MaxAttempts == b.MaxAttempts && a.Lifetime == b.Lifetime && a.Restart == b.Restart &&
		a.OnWorkerLoss == b.OnWorkerLoss && a.OnWorkerFailure == b.OnWorkerFailure && a.CompletesWithSame(b) &&
		a.ExitCodes.Equal(b.ExitCodes) && a.RestartLimit() == b.RestartLimit() && a.Hold == b.Hold &&
		reflect.DeepEqual(a.Volume, b.Volume)
}

// derives checks that a version which derives from another one has the latest request that the
// other one records, or its own request if there is no later one. An older version of Berth that
// writes the other record drops the latest request.
func (a *Auditor) derives(v, from *version) {
	if from.r == nil || from.r.State == model.Completed || from.r.State == model.Failed ||
		from.r.State == model.Replaced && a.upserted(v.key) {
		return // it ended in this revision, and a later upsert of the revision is only in the versions that live
	}
	want := from.r.Spec
	if from.r.Latest != nil {
		want = from.r.Latest.Spec
		needs := want.Constraints
		needs.Cells = v.r.Spec.Constraints.Cells
		if want.Volume != nil && v.r.Spec.Volume == nil || !request.SameConstraints(needs, v.r.Spec.Constraints) {
			want.Task = from.r.Spec.Task // it never runs without what its request needs
			// It may have taken an earlier request in this revision.
			if was := from.before(); was != nil && reflect.DeepEqual(was.Requested().Task, v.r.Spec.Task) {
				want.Task = v.r.Spec.Task
			}
		}
		want.Hold, want.Volume = from.r.Spec.Hold, v.r.Spec.Volume // a volume is not always taken
	}
	if !sameRequest(&want, &v.r.Spec) {
		a.violate(RuleOrigin, "%s derives from %s, and does not have its latest request", v, from)
	}
}

// upserted reports whether a reservation has answered a request in this revision.
func (a *Auditor) upserted(key model.Key) bool {
	before, after := map[string]bool{}, map[string]bool{}
	for _, v := range a.versions {
		if v.key != key {
			continue
		}
		if was := v.before(); was != nil {
			for _, mark := range was.Requests {
				before[mark.ID] = true
			}
		}
		if v.r != nil {
			for _, mark := range v.r.Requests {
				after[mark.ID] = true
			}
		}
	}
	for id := range after {
		if !before[id] {
			return true
		}
	}
	return false
}

// progress orders the stored states. It is negative for derived states.
func progress(s model.State) int {
	switch {
	case s == model.Queued:
		return 1
	case s == model.Active:
		return 2
	case s == model.Cancelling:
		return 3
	case s.Terminal():
		return 4
	}
	return -1
}

// rank is the position of a reservation in its queue. Requeues come first, in the order of
// their place, unless their reservation requeues by order. Parts have the same place and are in
// the order of their first worker index.
type rank struct {
	order, place int64
	index        int32
	uid          string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.order, o.order), cmp.Compare(r.place, o.place), cmp.Compare(r.index, o.index),
		cmp.Compare(r.uid, o.uid))
}

func rankOf(r *model.Reservation) rank {
	at := rank{order: r.Epoch, place: r.Place, uid: r.UID}
	if len(r.Workers) > 0 {
		at.index = r.Workers[0].First
	}
	switch {
	case r.RequeuedFirst():
		at.order = math.MinInt64
	case r.RefusedEpoch != 0: // its order and class do not count
		at.order = cmp.Or(r.PlaceEpoch, r.Epoch)
	case r.Spec.Priority.Order != nil:
		at.order = *r.Spec.Priority.Order
	case r.Spec.Priority.Class == model.ClassReplace:
		at.order = 0
	case r.PlaceEpoch != 0:
		at.order = r.PlaceEpoch
	}
	return at
}
