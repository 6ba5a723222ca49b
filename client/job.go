package client

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// KeepEnded is how long a version that has ended is kept with its workers, here and
// by the server.
const KeepEnded = 10 * time.Minute

// Job is the state of a job as Watch keeps it: the versions of its reservations,
// and their workers from the request on. While the body of the loop over Watch
// runs, it stands at the change given; it may be read at any time and from any
// goroutine, and then shows the newest.
//
// What has not ended is always there. A version that has ended goes ten minutes
// later, and its workers with it; only the highest number of each worker index stays,
// for as long as the job has a reservation at all.
type Job struct {
	name string

	mu sync.RWMutex
	// revision is that of the last event or list, listed that of the last list.
	revision, listed int64
	versions         map[string]*version
	// stages are the workers that are kept, each in the newest version that
	// names it, and the highest number of each worker index.
	stages map[string]*stage
	// ended are the versions that have, the first to be forgotten first.
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
	// State is one of QUEUED, ASSIGNING, ACTIVE, CANCELLING or an end. What a
	// cycle is under way for is QUEUED.
	State berthv1.Reservation_State
	// Reason and Message say why it ended.
	Reason, Message string
}

// Worker is one worker of the job. One that waits with its batch for executors is
// one, too.
type Worker struct {
	// Key and UID are those of the newest version that it was asked for by.
	Key
	UID string
	// Index is its place in the stage; the number rises each time the index is used again.
	Index, Number int32
	// State is unspecified until it has an executor, and where nothing is known
	// any more but that it has ended.
	State    berthv1.Assignment_State
	Executor string
	// Since is when it came into its state.
	Since time.Time
	// Reason and Message say why it ended; ExitCode is that of its process.
	Reason, Message string
	ExitCode        *int32
	// Requeued: it could not be started, and Berth queues its index again by
	// itself, with the next number. It is not for anyone else to replace.
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
		state = "waits"
	}
	return fmt.Sprintf("%s/%s/%d.%d %s", w.Job, w.Stage, w.Index, w.Number, state)
}

// Name is the name of the job.
func (j *Job) Name() string { return j.name }

// Revision is the one that the state is of, or is newer than.
func (j *Job) Revision() int64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.revision
}

// Versions are those of all reservations, in order of stage, name and age.
func (j *Job) Versions() []Version {
	j.mu.RLock()
	defer j.mu.RUnlock()
	list := make([]Version, 0, len(j.versions))
	for _, v := range j.versions {
		list = append(list, v.Version)
	}
	slices.SortFunc(list, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.UID, b.UID))
	})
	return list
}

// Workers are those of a stage, in order of index and number.
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
// by index: the one with the highest number. If that worker is not kept any more, only
// its index, its number and that it has ended are known.
//
// An index that is not there is free for number 1, one whose worker has ended and
// is not Requeued for the number after.
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

// shown is a worker as its version leaves it. How it ended may not have been told
// by the end of that; and what Berth has not queued again by then, it never does.
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
