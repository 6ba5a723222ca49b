package client

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// KeepEnded is how long the client and the server keep an ended version and its
// workers.
const KeepEnded = 10 * time.Minute

// Job is the state of a job that Watch maintains: the versions of its reservations, and
// their workers from the request on. In the body of a loop over Watch, it has the state
// of the current change. At any other time, and on any goroutine, it has the newest
// state.
//
// A Job has every version that has not ended. It drops an ended version and its workers
// after ten minutes. It keeps the highest number of each worker index, for as long as
// the job has a reservation.
type Job struct {
	name string

	mu sync.RWMutex
	// revision is the revision of the last event or list, listed that of the last list.
	revision, listed int64
	versions         map[string]*version
	// stages has the workers, each in the newest version that names it, and the highest
	// number of each worker index.
	stages map[string]*stage
	// ended has the ended versions, in order of their ends.
	ended []ended
}

// workerID is a worker index and the number of one of its workers.
type workerID struct{ index, number int32 }

type version struct {
	Version
	workers map[workerID]*worker
}

type stage struct {
	workers map[workerID]*worker
	highest map[int32]int32
}

type worker struct {
	Worker
	version *version
}

type ended struct {
	version *version
	at      time.Time
}

// Version is one version of a reservation.
type Version struct {
	Key
	UID string
	// Epoch is the revision that accepted it.
	Epoch int64
	// State is one of QUEUED, ASSIGNING, ACTIVE, CANCELLING or an end. A candidate in a
	// running cycle is QUEUED.
	State berthv1.Reservation_State
	// Reason and Message say why it ended.
	Reason, Message string
}

// Worker is one worker of the job, including those that are queued with their batch.
type Worker struct {
	// Key and UID are those of the newest version that names it.
	Key
	UID string
	// Index is its index in the stage; the number rises each time the index is reused.
	Index, Number int32
	// State is unspecified until the worker has an executor, and if only its end is
	// known.
	State    berthv1.Assignment_State
	Executor string
	// Since is when it entered its state.
	Since time.Time
	// Reason and Message say why it ended; ExitCode is that of its process.
	Reason, Message string
	ExitCode        *int32
	// Requeued: it could not be started, and Berth queues its index again, with the
	// next number. The job service must not replace it.
	Requeued bool
	// Ended: it does not run and is never started again.
	Ended bool
}

func (v Version) String() string { return fmt.Sprintf("%v(%s) %v", v.Key, v.UID, v.State) }

func (w Worker) String() string {
	state := w.State.String()
	switch {
	case w.State != berthv1.Assignment_STATE_UNSPECIFIED:
	case w.Ended:
		state = "ended"
	default:
		state = "queued"
	}
	return fmt.Sprintf("%s/%s/%d.%d %s", w.Job, w.Stage, w.Index, w.Number, state)
}

// Name returns the name of the job.
func (j *Job) Name() string { return j.name }

// Revision returns a revision that the state has reached.
func (j *Job) Revision() int64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.revision
}

// Versions returns the versions of all reservations, in order of stage, name and age.
func (j *Job) Versions() []Version {
	j.mu.RLock()
	defer j.mu.RUnlock()
	list := make([]Version, 0, len(j.versions))
	for _, v := range j.versions {
		list = append(list, v.Version)
	}
	slices.SortFunc(list, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Epoch, b.Epoch),
			cmp.Compare(a.UID, b.UID))
	})
	return list
}

// Workers returns the workers of a stage, in order of index and number.
func (j *Job) Workers(stage string) []Worker {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var list []Worker
	if s := j.stages[stage]; s != nil {
		for _, w := range s.workers {
			list = append(list, w.shown())
		}
	}
	slices.SortFunc(list, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Number, b.Number))
	})
	return list
}

// NewestWorkers returns the newest worker of each index of a stage that was ever used,
// by index: the one with the highest number. If the job has dropped that worker, only
// its index, number and Ended are set.
//
// An index that is not in the result is free for number 1. An index whose worker has
// ended and is not Requeued is free for the next number.
func (j *Job) NewestWorkers(stage string) map[int32]Worker {
	j.mu.RLock()
	defer j.mu.RUnlock()
	workers := map[int32]Worker{}
	s := j.stages[stage]
	if s == nil {
		return workers
	}
	for index, number := range s.highest {
		if w := s.workers[workerID{index, number}]; w != nil {
			workers[index] = w.shown()
		} else {
			workers[index] = Worker{Key: Key{Job: j.name, Stage: stage}, Index: index, Number: number, Ended: true}
		}
	}
	return workers
}

// shown returns a worker with the effects of its version's end. If the version has
// ended, the worker has ended too, even if its end was not reported, and Berth does not
// queue it again.
func (w *worker) shown() Worker {
	shown := w.Worker
	if shown.Ended = terminal(w.State); Ended(w.version.State) {
		if !shown.Ended {
			shown.State = berthv1.Assignment_STATE_UNSPECIFIED
		}
		shown.Ended, shown.Requeued = true, false
	}
	return shown
}
