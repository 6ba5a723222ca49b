package client

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// KeepEnded is how long the client and the registry keep an ended version and its
// workers.
const KeepEnded = 10 * time.Minute

// Job is the state of a job, which Watch maintains. It contains the versions of the job's
// reservations and their workers, including workers that are still queued. In the body of
// a loop over Watch, a Job has the state of the current change. Outside the loop and on
// other goroutines it has the newest state.
//
// A Job contains every version that has not ended. It drops an ended version and its
// workers after ten minutes. It keeps the highest number of each worker index as long as
// the job has a reservation.
type Job struct {
	name string

	mu sync.RWMutex
	// revision is the revision of the last event or list. listed is the revision of the last
	// list.
	revision, listed int64
	versions         map[string]*version
	// stages has the workers and the highest number of each worker index, by stage. Each
	// worker belongs to the newest version that names it.
	stages map[string]*stage
	// ended has the ended versions, in order of their ends.
	ended []ended
}

// workerID identifies a worker of a stage.
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
	// Epoch is the revision that accepted the version.
	Epoch int64
	// State is QUEUED, HELD, ASSIGNING, ACTIVE, CANCELLING or a final state. A version that is a
	// candidate in the current scheduling cycle, or about which cells are asked, is QUEUED, not
	// LEASING or OFFERING.
	State berthv1.Reservation_State
	// Reason and Message say why the version ended.
	Reason, Message string
}

// Worker is one worker of the job. It may still be queued with its batch.
type Worker struct {
	// Key and UID identify the newest version that names the worker.
	Key
	UID string
	// Index is the worker index in the stage. Number rises each time the index is used
	// again.
	Index, Number int32
	// State is unspecified until the worker has an executor. It is also unspecified if the
	// worker has ended and its final state is not known.
	State    berthv1.Assignment_State
	Executor string
	// Since is the time at which the worker entered its state.
	Since time.Time
	// Reason and Message say why the worker ended. ExitCode is the exit code of its process.
	Reason, Message string
	ExitCode        *int32
	// Requeued is set if Berth queues the worker index again with the next number: the worker
	// could not be started, or it is restarted or replaced. The job service must not replace
	// such a worker.
	Requeued bool
	// Ended is set if the worker does not run and is never started again.
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

// Revision returns the revision of the last event or list that the state includes.
func (j *Job) Revision() int64 {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.revision
}

// Versions returns the versions of all reservations, in order of stage, name and epoch.
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

// NewestWorkers returns the worker with the highest number of each index of a stage that
// was ever used, by index. If the Job has dropped this worker, only its key, index,
// number and Ended are set.
//
// If an index is not in the result, the next number to request is 1. If the worker of an
// index has ended and is not Requeued, the next number to request is the number of this
// worker plus 1.
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

// shown returns the worker as callers see it. If its version has ended, the worker has
// ended too, even if no event reported its end, and Berth does not queue the worker
// again.
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
