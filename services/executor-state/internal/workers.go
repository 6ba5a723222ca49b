package internal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// reportedWorkers holds the live workers on an executor according to the reports of one
// stream. It also holds whether some of them are orphaned, according to the assigner's
// answers. A stream begins with a complete report, and later reports contain changes. The
// leading assigner decides only by reports that it has received itself. So only a leader
// that has received a complete report can confirm that no worker is orphaned.
type reportedWorkers struct {
	mu  sync.Mutex
	set map[instance]struct{}
	// shared counts the workers above freeItems of all agents. over is how many of them
	// are in set.
	shared *sharedItems
	over   int64
	closed bool
	// answeredTerm is the term of the leader that answered the newest complete report.
	// unanswered counts the complete reports without an answer.
	answeredTerm int64
	unanswered   int
	// firstAnswer is closed with the first answer of a leader that has received a complete
	// report. answeredAt is the time of the newest such answer; zero if there is none.
	// orphans is how many orphaned workers that answer reported, or more if a later answer
	// reported more.
	firstAnswer chan struct{}
	answeredAt  time.Time
	orphans     int32
}

func newReportedWorkers(shared *sharedItems) *reportedWorkers {
	return &reportedWorkers{shared: shared, firstAnswer: make(chan struct{})}
}

// Each agent may report freeItems live workers and list freeItems volumes. All agents share
// maxSharedItems workers, and as many volumes, above that number, because any agent may list
// any number of them.
const (
	freeItems      = 64
	maxSharedItems = 1_000_000
)

// sharedItems counts the workers, or the volumes, above freeItems of all agents of a replica.
type sharedItems struct{ items atomic.Int64 }

// resize updates the part of an agent that now has size items; held is the part before. It
// reports whether the items of all agents are within the limit. If not, it changes nothing.
func (c *sharedItems) resize(held *int64, size int) bool {
	over := max(0, int64(size)-freeItems)
	added := over - *held
	if c.items.Add(added) > maxSharedItems && added > 0 {
		c.items.Add(-added)
		return false
	}
	*held = over
	return true
}

// instance is a worker of one epoch.
type instance struct {
	worker model.Worker
	epoch  int64
}

// reported records a report, and reports whether the workers are within the limits.
func (l *reportedWorkers) reported(r *controlv1.ExecutorReport) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.GetComplete() || l.set == nil {
		l.set = map[instance]struct{}{}
	}
	if r.GetComplete() {
		l.unanswered++
	}
	for _, w := range r.GetWorkers() {
		workerID := model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}
		of := instance{model.Worker{Job: w.GetJob(), Stage: w.GetStage(), ID: workerID}, w.GetEpoch()}
		if wire.WorkerState(w.GetState()).Terminal() {
			delete(l.set, of)
		} else {
			l.set[of] = struct{}{}
		}
	}
	if l.closed {
		return true
	}
	return len(l.set) <= wire.MaxReportedWorkers && l.shared.resize(&l.over, len(l.set))
}

// close subtracts the session's part from the shared count when the stream has ended.
func (l *reportedWorkers) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared.resize(&l.over, 0)
	l.closed = true
}

// answered records the answer to a report. It reports whether the executor must be
// announced again: either the workers had no answer before, or the executor now has
// orphaned workers and had none, or the reverse.
func (l *reportedWorkers) answered(complete bool, answer *controlv1.ExecutorReportAnswer) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if complete {
		l.answeredTerm = answer.GetTerm()
		l.unanswered--
	}
	orphans := answer.GetOrphans()
	if answer.GetTerm() != l.answeredTerm {
		orphans = max(orphans, l.orphans)
	} else {
		if l.answeredAt.IsZero() {
			close(l.firstAnswer)
			changed = len(l.set) > 0
		}
		l.answeredAt = time.Now()
	}
	changed = changed || (l.orphans > 0) != (orphans > 0)
	l.orphans = orphans
	return changed
}

// needFullReport reports whether the leader of a term needs a complete report: it has
// received none, and none is on its way. It needs none if no worker lives. If a leader
// answers without a term, needFullReport returns false, because the answer does not say
// what the leader has received.
func (l *reportedWorkers) needFullReport(term int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unanswered > 0 || len(l.set) == 0 && l.orphans == 0 || l.answeredTerm == 0 && !l.answeredAt.IsZero() {
		return false
	}
	return term > l.answeredTerm
}

// count returns the number of live workers.
func (l *reportedWorkers) count() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int32(len(l.set))
}

// mayHaveOrphans reports whether some workers are orphaned, or may be because no answer
// has come. It also returns the time of the newest answer; zero if there is none.
func (l *reportedWorkers) mayHaveOrphans() (orphans bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answeredAt.IsZero() {
		return len(l.set) > 0, time.Time{}
	}
	return l.orphans > 0, l.answeredAt
}

// await waits for the first answer if workers live, for at most atMost.
func (l *reportedWorkers) await(ctx context.Context, atMost time.Duration) {
	if l.count() == 0 {
		return
	}
	select {
	case <-l.firstAnswer:
	case <-time.After(atMost):
	case <-ctx.Done():
	}
}
