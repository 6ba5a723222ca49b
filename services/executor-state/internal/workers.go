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
	// shared counts the workers above freeWorkers of all agents. over is how many of them
	// are in set.
	shared *sharedWorkers
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

func newReportedWorkers(shared *sharedWorkers) *reportedWorkers {
	return &reportedWorkers{shared: shared, firstAnswer: make(chan struct{})}
}

// Each agent may report freeWorkers live workers. For the workers above that number, all
// agents share maxSharedWorkers, because any agent may list any number of workers.
const (
	freeWorkers      = 64
	maxSharedWorkers = 1_000_000
)

// sharedWorkers counts the workers above freeWorkers of all agents of a replica.
type sharedWorkers struct{ workers atomic.Int64 }

// add adds n workers, which may be negative, and reports whether they are within the limit.
func (c *sharedWorkers) add(n int64) bool {
	if c.workers.Add(n) <= maxSharedWorkers || n <= 0 {
		return true
	}
	c.workers.Add(-n)
	return false
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
	over := max(0, int64(len(l.set))-freeWorkers)
	if len(l.set) > wire.MaxReportedWorkers || !l.shared.add(over-l.over) {
		return false
	}
	l.over = over
	return true
}

// close subtracts the session's part from the shared count when the stream has ended.
func (l *reportedWorkers) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shared.add(-l.over)
	l.over, l.closed = 0, true
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
