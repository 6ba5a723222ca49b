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

// living are the workers that live on an executor, as the reports of one stream
// tell, and whether records want them there, as the assigner answers: a stream
// begins with a complete report, and the others tell what changed. Who leads the
// assigner judges by what was reported to it alone, so that only one that was told
// everything can say that nothing is wrong.
type living struct {
	mu  sync.Mutex
	set map[instance]struct{}
	// crowd has what the set has above freeWorkers.
	crowd     *crowd
	over      int64
	forgotten bool
	// told is the term of the leader that has answered the newest complete report,
	// and telling how many complete ones have no answer yet.
	told    int64
	telling int
	// judged is closed with the first answer of a leader that was told everything.
	judged chan struct{}
	// answered is when the last such answer came, zero before; strays is what it
	// said, or a later one that knows of more.
	answered time.Time
	strays   int32
}

func newLiving(all *crowd) *living { return &living{crowd: all, judged: make(chan struct{})} }

// The bounds of the workers that agents report as living: freeWorkers of each agent,
// and of all that have more, crowdLimit beyond that, for any agent may list any number
// of workers.
const (
	freeWorkers = 64
	crowdLimit  = 1_000_000
)

// crowd counts the workers above freeWorkers of all agents of a replica.
type crowd struct{ workers atomic.Int64 }

// add takes n more, less if n is negative, and reports whether there is room.
func (c *crowd) add(n int64) bool {
	if c.workers.Add(n) <= crowdLimit || n <= 0 {
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

// reported takes in a report. It reports whether the workers are within the bounds.
func (l *living) reported(r *controlv1.ExecutorReport) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.GetComplete() || l.set == nil {
		l.set = map[instance]struct{}{}
	}
	if r.GetComplete() {
		l.telling++
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
	over := max(0, int64(len(l.set))-freeWorkers)
	if l.forgotten {
		return true
	}
	if len(l.set) > wire.MaxReportedWorkers || !l.crowd.add(over-l.over) {
		return false
	}
	l.over = over
	return true
}

// forget forgets all workers: the stream has ended.
func (l *living) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crowd.add(-l.over)
	l.over, l.forgotten = 0, true
}

// judge takes in the answer to a report, a complete one or not, and says whether
// that is news: of workers of which nothing was said yet, or of strays where there
// were none, or the reverse.
func (l *living) judge(complete bool, answer *controlv1.ExecutorReportAnswer) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if complete {
		l.told = answer.GetTerm()
		l.telling--
	}
	strays := answer.GetStrays()
	if answer.GetTerm() != l.told {
		strays = max(strays, l.strays)
	} else {
		if l.answered.IsZero() {
			close(l.judged)
			news = len(l.set) > 0
		}
		l.answered = time.Now()
	}
	news = news || (l.strays > 0) != (strays > 0)
	l.strays = strays
	return news
}

// lacks says whether the leader of a term is to be told everything: it was not, and
// nothing is on its way. Where nothing lives there is nothing to tell, and a leader
// that answers without a term does not say what it was told.
func (l *living) lacks(term int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.telling > 0 || len(l.set) == 0 && l.strays == 0 || l.told == 0 && !l.answered.IsZero() {
		return false
	}
	return term > l.told
}

// count is how many live.
func (l *living) count() int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int32(len(l.set))
}

// doubtful says whether some of them should not be there, or may not, for nothing
// was answered yet; and since when the answer stands, zero for none.
func (l *living) doubtful() (doubtful bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered.IsZero() {
		return len(l.set) > 0, time.Time{}
	}
	return l.strays > 0, l.answered
}

// await waits until nothing is in doubt for want of an answer, but not for long.
func (l *living) await(ctx context.Context, atMost time.Duration) {
	if l.count() == 0 {
		return
	}
	enough := time.NewTimer(atMost)
	defer enough.Stop()
	select {
	case <-l.judged:
	case <-enough.C:
	case <-ctx.Done():
	}
}
