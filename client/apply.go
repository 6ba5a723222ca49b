package client

import (
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

func newJob(name string) *Job {
	return &Job{name: name, versions: map[string]*version{}, stages: map[string]*stage{}}
}

// becomes are the states that events of reservations tell of.
var becomes = map[berthv1.Event_Kind]berthv1.Reservation_State{
	berthv1.Event_RESERVATION_QUEUED:    berthv1.Reservation_QUEUED,
	berthv1.Event_RESERVATION_REQUEUED:  berthv1.Reservation_QUEUED,
	berthv1.Event_RESERVATION_LEASED:    berthv1.Reservation_ASSIGNING,
	berthv1.Event_RESERVATION_ASSIGNED:  berthv1.Reservation_ACTIVE,
	berthv1.Event_RESERVATION_CANCELLED: berthv1.Reservation_CANCELLED,
	berthv1.Event_RESERVATION_EXPIRED:   berthv1.Reservation_EXPIRED,
	berthv1.Event_RESERVATION_REPLACED:  berthv1.Reservation_REPLACED,
	berthv1.Event_RESERVATION_COMPLETED: berthv1.Reservation_COMPLETED,
	berthv1.Event_RESERVATION_FAILED:    berthv1.Reservation_FAILED,
}

// apply takes one event, and says whether the state is whole after it, or is to
// be listed: an event of many workers counts them and may name none; and after
// one that a version is replaced there is another of what takes its place, of
// the same revision, before which its indexes only seem to be free.
//
// What a list has shown already changes nothing.
func (j *Job) apply(e *berthv1.Event, now time.Time) (whole bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forget(now)
	if e.GetRevision() <= j.listed || e.GetKind() == berthv1.Event_EXECUTOR_DISABLED {
		return true
	}
	j.revision = e.GetRevision()
	v := j.version(e.GetUid(), Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()})
	state, ofReservation := becomes[e.GetKind()]
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
	if ofReservation && state > v.State && !Ended(v.State) {
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

// take makes the state what was listed. What the list shows of a version or a
// worker may be newer than its revision; the events that told of that are still
// to come, and find it done.
func (j *Job) take(l *listing, now time.Time) {
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
		if v.State == berthv1.Reservation_LEASING {
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

// keep adds to what was just listed what is known of a version beyond that: an
// earlier list may have shown more than this one, and how workers ended is not
// listed any more once their version has.
func (j *Job) keep(before *version) {
	v := j.versions[before.UID]
	newer := before.Epoch > j.listed // than the list, which need not have it
	if v == nil && !newer {
		return // it is forgotten
	}
	if v == nil {
		v = j.version(before.UID, before.Key)
		v.Version = before.Version
	}
	if before.State >= berthv1.Reservation_ACTIVE && before.State > v.State {
		v.State, v.Reason, v.Message = before.State, before.Reason, before.Message
	}
	for at, w := range before.workers {
		if newer || v.workers[at] != nil {
			j.advance(v, w.Worker)
		}
	}
}

// version finds or makes one, which is queued until more is told of it.
func (j *Job) version(uid string, key Key) *version {
	v := j.versions[uid]
	if v == nil {
		v = &version{Version: Version{Key: key, UID: uid, State: berthv1.Reservation_QUEUED}, workers: map[workerID]*worker{}}
		j.versions[uid] = v
	}
	return v
}

// worker finds or makes one that a version names. The newest version that
// does has it: one that replaces another, and a part of one, name workers that
// were named before. For an older one there is nil.
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

// advance brings a worker of a version into another state, if its own leads
// there: lists and events overlap.
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

// follows says whether a worker may get from one state to another, over any
// number of others, which a list may leave out: states are in order.
func follows(was, next berthv1.Assignment_State) bool {
	return next > was && !terminal(was)
}

// terminal reports whether a worker in that state has ended.
func terminal(s berthv1.Assignment_State) bool { return s >= berthv1.Assignment_COMPLETED }

// raise raises the highest number of a worker index, and answers its stage.
func (j *Job) raise(name string, index, number int32) *stage {
	s := j.stages[name]
	if s == nil {
		s = &stage{workers: map[workerID]*worker{}, highest: map[int32]int32{}}
		j.stages[name] = s
	}
	s.highest[index] = max(s.highest[index], number)
	return s
}

// forget drops the versions that ended long enough ago, with their workers.
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
