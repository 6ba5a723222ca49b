package internal

import (
	"context"
	"sync"
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

func newLiving() *living { return &living{judged: make(chan struct{})} }

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
	if r.GetComplete() {
		l.telling++
	}
	for _, w := range r.GetWorkers() {
		seat := model.Seat{Index: w.GetIndex(), Number: w.GetNumber()}
		of := instance{model.Worker{Job: w.GetJob(), Stage: w.GetStage(), Seat: seat}, w.GetEpoch()}
		if wire.WorkerState(w.GetState()).Terminal() {
			delete(l.set, of)
		} else {
			l.set[of] = struct{}{}
		}
	}
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
