package audit

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"berth.dev/pkg/model"
)

// version is all that is known of one uid.
type version struct {
	uid string
	key model.Key
	r   *model.Reservation
	// group is the queue's id; asked the places it had in it since it was
	// accepted, while it waits.
	group string
	asked []asked

	lease map[int32]*model.LeaseChunk
	// leased is the revision of the grant; it stays when the lease is gone.
	leased int64

	header *model.TaskHeader
	tasks  map[int32]*model.TaskChunk
	// complete stays set when the header is gone.
	complete bool

	// was is the record before this revision, while touched is set.
	was     *model.Reservation
	touched bool
}

// touch finds or makes what is known of a uid, for this revision to change.
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

// before is the reservation as this revision found it.
func (v *version) before() *model.Reservation {
	if v.touched {
		return v.was
	}
	return v.r
}

// gone says that no record of the uid is left.
func (v *version) gone() bool {
	return v.r == nil && v.header == nil && len(v.lease) == 0 && len(v.tasks) == 0
}

// waits says whether the uid stands in its queue.
func (v *version) waits() bool {
	return v.r != nil && v.r.State == model.Queued && v.leased == 0 && v.header == nil
}

// living says whether the reservation is there and has not ended.
func (v *version) living() bool { return v.r != nil && !v.r.State.Terminal() }

// stopping says whether a worker was cancelled, by itself or with all others,
// so that it is being stopped.
func (v *version) stopping(workerID model.WorkerID) bool {
	return v.r == nil || v.r.State == model.Cancelling || v.r.State == model.Cancelled || v.r.Unwanted.Has(workerID)
}

func (v *version) String() string { return v.key.String() + " (uid " + v.uid + ")" }

// placements gives the lease's workers in order of chunk.
func (v *version) placements() []model.Placement {
	var all []model.Placement
	for _, n := range slices.Sorted(maps.Keys(v.lease)) {
		all = append(all, v.lease[n].Workers...)
	}
	return all
}

// placed finds a worker in the lease, whose chunks hold theirs in order of index.
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

// assignment finds a worker in the task, whose chunks hold theirs in order of
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

// setReservation moves a reservation's record.
func (a *Auditor) setReservation(ref model.Ref, next *model.Reservation) {
	v := a.touch(ref.ID)
	v.key = ref.Key
	prev := v.r
	a.leaveQueue(v)
	v.r = next
	a.judgeReservation(v, prev, next)
	if next != nil {
		if prev == nil || v.group == "" {
			v.group = next.Spec.Constraints.Group()
		}
		if next.State == model.Queued {
			v.ask(next)
		}
	}
	a.enterQueue(v)
}

func (a *Auditor) judgeReservation(v *version, prev, next *model.Reservation) {
	switch {
	case next == nil:
		if prev != nil && !prev.State.Terminal() && !a.step.jump {
			a.violate(RuleNeverLost, "%s was deleted while %s", v, prev.State)
		}
		return
	case prev == nil:
		a.stats.Reservations++
		a.step.born = append(a.step.born, v)
		// One transaction may both take a request and end it.
		began := next.State == model.Queued || next.State == model.Cancelled || next.State == model.Replaced
		if !began && !a.step.jump {
			a.violate(RuleReservationState, "%s began as %s", v, next.State)
		}
	case prev.State.Terminal() && next.State != prev.State, progress(next.State) < progress(prev.State):
		a.violate(RuleReservationState, "%s went from %s to %s", v, prev.State, next.State)
	case !prev.Workers.Equal(next.Workers):
		a.step.split = append(a.step.split, split{v, prev.Workers})
	case v.group != next.Spec.Constraints.Group():
		a.violate(RuleImmutable, "%s changed its constraints", v)
	}
	if prev != nil && (!contains(next.Unwanted, prev.Unwanted) || !contains(next.Workers, next.Unwanted)) {
		a.violate(RuleImmutable, "%s takes back workers that were cancelled, or cancels others than its own", v)
	}
	if progress(next.State) < 0 {
		a.violate(RuleReservationState, "%s is stored as %s, which is derived", v, next.State)
	}
	if next.State.Terminal() && (prev == nil || prev.State != next.State) {
		a.stats.Ended[next.State]++
	}
}

// progress orders the states that are stored; negative for those that never
// are.
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

// rank is where a reservation stands in its queue: what is requeued first, by
// place alone; and parts, which share a place, by index.
type rank struct {
	order, place int64
	index        int32
	uid          string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.order, o.order), cmp.Compare(r.place, o.place), cmp.Compare(r.index, o.index), cmp.Compare(r.uid, o.uid))
}

func rankOf(r *model.Reservation) rank {
	at := rank{order: r.Epoch, place: r.Place, uid: r.UID}
	if len(r.Workers) > 0 {
		at.index = r.Workers[0].First
	}
	switch {
	case r.Origin == model.OriginRequeue:
		at.order = math.MinInt64
	case r.Spec.Priority.Order != nil:
		at.order = *r.Spec.Priority.Order
	case r.Spec.Priority.Class == model.ClassReplace:
		at.order = 0
	case r.PlaceEpoch != 0:
		at.order = r.PlaceEpoch
	}
	return at
}
