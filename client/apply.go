package client

import (
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

func newJob(name string) *Job {
	return &Job{name: name, versions: map[string]*version{}, stages: map[string]*stage{}}
}

// eventStates maps each kind of event about a reservation to the state of the reservation
// after the event.
var eventStates = map[berthv1.Event_Kind]berthv1.Reservation_State{
	berthv1.Event_RESERVATION_QUEUED:    berthv1.Reservation_QUEUED,
	berthv1.Event_RESERVATION_REQUEUED:  berthv1.Reservation_QUEUED,
	berthv1.Event_RESERVATION_LEASED:    berthv1.Reservation_ASSIGNING,
	berthv1.Event_RESERVATION_HELD:      berthv1.Reservation_HELD,
	berthv1.Event_RESERVATION_BOUND:     berthv1.Reservation_ASSIGNING,
	berthv1.Event_RESERVATION_WITHDRAWN: berthv1.Reservation_REPLACED,
	berthv1.Event_RESERVATION_ASSIGNED:  berthv1.Reservation_ACTIVE,
	berthv1.Event_RESERVATION_CANCELLED: berthv1.Reservation_CANCELLED,
	berthv1.Event_RESERVATION_EXPIRED:   berthv1.Reservation_EXPIRED,
	berthv1.Event_RESERVATION_REPLACED:  berthv1.Reservation_REPLACED,
	berthv1.Event_RESERVATION_COMPLETED: berthv1.Reservation_COMPLETED,
	berthv1.Event_RESERVATION_FAILED:    berthv1.Reservation_FAILED,
}

// rank orders the states of a version by when it reaches them. HELD follows QUEUED.
func rank(s berthv1.Reservation_State) int {
	if s == berthv1.Reservation_HELD {
		return int(berthv1.Reservation_LEASING)
	}
	return int(s)
}

// apply applies one event and reports whether the state is complete after the event. If
// it returns false, the caller must list the state. There are two reasons. An event about
// many workers may contain only their count. If a version was replaced, the event about
// its successor follows at the same revision. Until then the worker indexes of the
// version would seem to be free.
//
// An event that the last list already includes changes nothing.
func (j *Job) apply(e *berthv1.Event, now time.Time) (whole bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(now)
	if e.GetRevision() <= j.listed || e.GetKind() == berthv1.Event_EXECUTOR_DISABLED {
		return true
	}
	j.revision = e.GetRevision()
	v := j.version(e.GetUid(), Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()})
	state, ofReservation := eventStates[e.GetKind()]
	switch {
	case !ofReservation:
		for _, w := range e.GetWorkers() {
			j.advance(v, Worker{
				Index: w.GetIndex(), Number: w.GetNumber(), State: w.GetState(), Executor: w.GetExecutor(),
				Since: e.GetTime().AsTime(), Reason: w.GetReason(), Message: w.GetMessage(), ExitCode: w.ExitCode,
				Requeued: e.GetKind() == berthv1.Event_WORKER_REQUEUED,
			})
		}
	case state == berthv1.Reservation_QUEUED:
		v.Epoch = e.GetRevision()
		for _, w := range e.GetWorkers() {
			j.worker(v, w.GetIndex(), w.GetNumber())
		}
	}
	if ofReservation && rank(state) > rank(v.State) && !Ended(v.State) {
		v.State, v.Reason, v.Message = state, e.GetReason(), e.GetMessage()
		if Ended(state) {
			j.ended = append(j.ended, ended{v, now})
		}
	}
	if ofReservation && state != berthv1.Reservation_QUEUED {
		return state != berthv1.Reservation_REPLACED
	}
	return len(e.GetWorkers()) == int(e.GetCount())
}

// replace replaces the state with a listing. A version or a worker in the listing may be
// newer than the revision of the listing. The events about this newer state still follow,
// and change nothing.
func (j *Job) replace(l *listing, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.versions
	j.revision, j.listed = l.revision, l.revision
	j.versions, j.stages, j.ended = map[string]*version{}, map[string]*stage{}, nil
	for _, s := range l.stages {
		for _, workerID := range s.GetWorkers() {
			j.raise(s.GetStage(), workerID.GetIndex(), workerID.GetNumber())
		}
	}
	for _, r := range l.versions {
		v := j.version(r.GetUid(), KeyOf(r))
		v.Epoch, v.State, v.Reason, v.Message = r.GetEpoch(), r.GetState(), r.GetReason(), r.GetMessage()
		if v.State == berthv1.Reservation_LEASING || v.State == berthv1.Reservation_OFFERING {
			v.State = berthv1.Reservation_QUEUED
		}
		for _, workerID := range r.GetWorkers() {
			j.worker(v, workerID.GetIndex(), workerID.GetNumber())
		}
	}
	for _, a := range l.assignments {
		v := j.version(a.GetUid(), Key{Job: a.GetJob(), Stage: a.GetStage(), Name: a.GetReservation()})
		v.Epoch = a.GetEpoch()
		j.advance(v, Worker{
			Index: a.GetIndex(), Number: a.GetNumber(), State: a.GetState(), Executor: a.GetExecutor(),
			Since: a.GetSince().AsTime(), Reason: a.GetReason(), Message: a.GetLastError(), ExitCode: a.ExitCode,
			Requeued: a.GetRequeued(),
		})
	}
	for _, v := range before {
		j.keep(v)
	}
	for _, v := range j.versions {
		if Ended(v.State) {
			j.ended = append(j.ended, ended{v, now})
		}
	}
}

// keep adds to a new listing what only the old state contains. This is necessary for two
// reasons: an earlier list may have been newer than this list, and lists do not contain
// the ends of the workers of an ended version.
func (j *Job) keep(before *version) {
	v := j.versions[before.UID]
	newer := before.Epoch > j.listed // newer than the list, which may not contain it
	if v == nil && !newer {
		return // the server has deleted it
	}
	if v == nil {
		v = j.version(before.UID, before.Key)
		v.Version = before.Version
	}
	if at := rank(before.State); at >= rank(berthv1.Reservation_ACTIVE) && at > rank(v.State) {
		v.State, v.Reason, v.Message = before.State, before.Reason, before.Message
	}
	for at, w := range before.workers {
		if newer || v.workers[at] != nil {
			j.advance(v, w.Worker)
		}
	}
}

// version returns the version with the uid. If it does not exist, version creates it as
// QUEUED.
func (j *Job) version(uid string, key Key) *version {
	v := j.versions[uid]
	if v == nil {
		v = &version{Version: Version{Key: key, UID: uid, State: berthv1.Reservation_QUEUED}, workers: map[workerID]*worker{}}
		j.versions[uid] = v
	}
	return v
}

// worker returns a worker that a version names. If the worker does not exist, it creates
// the worker. A worker belongs to the newest version that names it, because a version
// that replaces another version, or is a part of it, names the same workers again. If a
// newer version names the worker, it returns nil.
func (j *Job) worker(v *version, index, number int32) *worker {
	s := j.raise(v.Stage, index, number)
	at := workerID{index, number}
	w := s.workers[at]
	switch {
	case w == nil:
		w = &worker{Worker: Worker{Index: index, Number: number}}
		s.workers[at] = w
	case w.version == v:
		return w
	case w.version.Epoch > v.Epoch:
		return nil
	default:
		delete(w.version.workers, at)
	}
	w.version, w.Key, w.UID = v, v.Key, v.UID
	v.workers[at] = w
	return w
}

// advance sets the state of a worker of a version. It never sets the worker back to an
// earlier state, because lists and events overlap.
func (j *Job) advance(v *version, to Worker) {
	w := j.worker(v, to.Index, to.Number)
	if w == nil {
		return
	}
	if follows(w.State, to.State) {
		to.Key, to.UID = v.Key, v.UID
		w.Worker = to
	}
}

// follows reports whether a worker may change from one state to another. It relies on the
// order of the states. Lists may skip states in between.
func follows(was, next berthv1.Assignment_State) bool {
	return next > was && !terminal(was)
}

// terminal reports whether a worker in this state has ended.
func terminal(s berthv1.Assignment_State) bool { return s >= berthv1.Assignment_COMPLETED }

// raise raises the highest number of a worker index to number, if it is lower, and
// returns the stage.
func (j *Job) raise(name string, index, number int32) *stage {
	s := j.stages[name]
	if s == nil {
		s = &stage{workers: map[workerID]*worker{}, highest: map[int32]int32{}}
		j.stages[name] = s
	}
	s.highest[index] = max(s.highest[index], number)
	return s
}

// forget drops the versions that ended more than KeepEnded ago, with their workers.
func (j *Job) forget(now time.Time) {
	for len(j.ended) > 0 && now.Sub(j.ended[0].at) > KeepEnded {
		v := j.ended[0].version
		for at := range v.workers {
			delete(j.stages[v.Stage].workers, at)
		}
		delete(j.versions, v.UID)
		j.ended = j.ended[1:]
	}
}
