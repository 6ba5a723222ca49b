package internal

import (
	"sync"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
)

// living are the workers that live on an executor, as the reports of one stream
// tell: a stream begins with a complete one, and the others tell what changed.
type living struct {
	mu  sync.Mutex
	set map[instance]struct{}
}

// instance is a worker of one epoch.
type instance struct {
	worker model.Worker
	epoch  int64
}

// reported takes in a report.
func (l *living) reported(r *controlv1.ExecutorReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.GetComplete() || l.set == nil {
		l.set = map[instance]struct{}{}
	}
	for _, w := range r.GetWorkers() {
		seat := model.Seat{Index: w.GetIndex(), Number: w.GetNumber()}
		of := instance{model.Worker{Job: w.GetJob(), Stage: w.GetStage(), Seat: seat}, w.GetEpoch()}
		if model.WorkerState(w.GetState()).Terminal() {
			delete(l.set, of)
		} else {
			l.set[of] = struct{}{}
		}
	}
}

// count is how many live.
func (l *living) count() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int32(len(l.set))
}
