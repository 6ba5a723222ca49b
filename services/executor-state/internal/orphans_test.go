package internal

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/testkit/looptest"
)

// assigner is the assigner's leader of one term. It treats every reported worker as
// orphaned.
type assigner struct {
	term    int64
	orphans map[int32]bool // by worker index
}

func (a *assigner) take(_ context.Context, req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer,
	error) {
	answer := &controlv1.ReportWorkersAnswer{}
	for _, r := range req.GetReports() {
		if r.GetComplete() {
			clear(a.orphans)
		}
		for _, w := range r.GetWorkers() {
			if delete(a.orphans, w.GetIndex()); !model.WorkerState(w.GetState()).Terminal() {
				a.orphans[w.GetIndex()] = true
			}
		}
		answer.Answers = append(answer.Answers, &controlv1.ExecutorReportAnswer{Executor: r.GetExecutor(), Term: a.term,
			Orphans: int32(len(a.orphans))})
	}
	return answer, nil
}

// succeed replaces the leader by one of another term that has received no report.
func (a *assigner) succeed(term int64) { a.term, a.orphans = term, map[int32]bool{} }

// host is an executor whose agent the test controls.
type host struct {
	t *testing.T
	*session
}

// says sends a heartbeat of the agent and reports whether the answer requests a complete
// report.
func (h host) says(report *controlv1.ExecutorReport) (asked bool) {
	h.t.Helper()
	h.handle(&controlv1.HeartbeatRequest{Id: h.id, Incarnation: h.incarnation, Report: report})
	synctest.Wait()
	for b := h.stream.(back); ; {
		select {
		case answer := <-b.answers:
			asked = asked || answer.GetEverything()
		case err := <-b.ended:
			h.t.Fatalf("the stream has ended: %v", err)
		default:
			return asked
		}
	}
}

// ready reports whether the executor may get new workers.
func (h host) ready() bool {
	h.t.Helper()
	var view inventory.ExecutorView
	if err := h.h.peek(h.t.Context(), func(c *inventory.Core) { view, _ = c.Executor(h.id) }); err != nil {
		h.t.Fatal(err)
	}
	return view.State == model.ExecutorReady
}

// running returns reports of running workers. ended returns reports of workers that have
// ended.
func running(indexes ...int32) []*controlv1.WorkerReport {
	return workers(model.WorkerRunning, indexes)
}

func ended(indexes ...int32) []*controlv1.WorkerReport {
	return workers(model.WorkerEvicted, indexes)
}

func workers(state model.WorkerState, indexes []int32) (all []*controlv1.WorkerReport) {
	for _, index := range indexes {
		all = append(all, &controlv1.WorkerReport{Job: "j", Stage: "s", Index: index, Epoch: 3,
			State: berthv1.Assignment_State(state)})
	}
	return all
}

// hosting runs the session of an executor that joined with two workers. The executor has
// reported both to the assigner's leader of term 1.
func hosting(t *testing.T, then func(h host, a *assigner)) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		a := &assigner{}
		a.succeed(1)
		ctx, stop := context.WithCancel(t.Context())
		var forwarding sync.WaitGroup
		s.h.reports = newReports(a.take)
		forwarding.Go(func() { _ = s.h.reports.Run(ctx) })
		defer forwarding.Wait()
		defer stop()
		h := host{t, beating(t, s.h, "a", register(t, agents, "a", rand.Text()).GetIncarnation())}
		if h.says(&controlv1.ExecutorReport{Complete: true, Workers: running(0, 1)}) {
			t.Error("a complete report was requested after a complete report")
		}
		if h.ready() {
			t.Error("the executor is ready with two orphans")
		}
		then(h, a)
	})
}

// If a new leader of the assigner has received only changes, it cannot know whether there
// are orphaned workers. Its first answer requests a complete report. Until that report
// arrives, the answer of its predecessor counts.
func TestPitfallOrphansAfterAFailoverOfTheAssigner(t *testing.T) {
	hosting(t, func(h host, a *assigner) {
		a.succeed(2)
		if !h.says(&controlv1.ExecutorReport{Workers: ended(0)}) {
			t.Error("no complete report was requested")
		}
		if len(a.orphans) != 0 || h.ready() {
			t.Errorf("one worker still runs, the assigner knows %d; ready: %v", len(a.orphans), h.ready())
		}
		if h.says(&controlv1.ExecutorReport{Complete: true, Workers: running(1)}) || h.ready() || len(a.orphans) != 1 {
			t.Errorf("after a complete report the assigner knows %d; ready: %v", len(a.orphans), h.ready())
		}
		if h.says(&controlv1.ExecutorReport{Workers: ended(1)}) || !h.ready() {
			t.Error("the last worker has ended, but the executor is not ready")
		}
	})
}

// After this replica has seen an election of the assigner, the next heartbeat requests a
// complete report from each executor with live workers.
func TestNewAssignerReceivesACompleteReport(t *testing.T) {
	hosting(t, func(h host, a *assigner) {
		if time.Sleep(HeartbeatEvery); h.says(nil) {
			t.Error("a complete report was requested although the leader has received one")
		}
		a.succeed(looptest.Write(t, h.h.store, &model.Leader{Service: model.ServiceAssigner}))
		time.Sleep(HeartbeatEvery)
		if !h.says(nil) {
			t.Error("no complete report was requested")
		}
		if h.says(&controlv1.ExecutorReport{Complete: true, Workers: running(0, 1)}); h.says(nil) || len(a.orphans) != 2 {
			t.Errorf("a complete report was requested again, or the assigner knows %d", len(a.orphans))
		}
	})
}

func TestNoCompleteReportOfIdleExecutors(t *testing.T) {
	hosting(t, func(h host, a *assigner) {
		h.says(&controlv1.ExecutorReport{Workers: ended(0, 1)})
		a.succeed(looptest.Write(t, h.h.store, &model.Leader{Service: model.ServiceAssigner}))
		if time.Sleep(HeartbeatEvery); h.says(nil) {
			t.Error("a complete report was requested")
		}
	})
}

// An assigner of an earlier version answers without a term. Its answers count too.
func TestAssignerWithoutTerm(t *testing.T) {
	hosting(t, func(h host, a *assigner) {
		a.succeed(0)
		h.says(&controlv1.ExecutorReport{Complete: true, Workers: running(0)})
		looptest.Write(t, h.h.store, &model.Leader{Service: model.ServiceAssigner})
		time.Sleep(HeartbeatEvery)
		if h.says(nil) || h.says(&controlv1.ExecutorReport{Workers: ended(0)}) || !h.ready() {
			t.Errorf("a complete report was requested, or ready is %v", h.ready())
		}
	})
}

// The relay's list of present agents does not replace an answer that requests a complete
// report.
func TestRelayRequestsACompleteReport(t *testing.T) {
	r := &relay{wake: make(chan struct{}, 1)}
	(&relayed{r: r, agent: 1}).answer(&controlv1.HeartbeatAnswer{Present: true, Everything: true})
	if m := r.takeAll()[0]; len(m.GetPresent()) != 0 || len(m.GetAnswers()) != 1 {
		t.Errorf("the answer is %v", m)
	}
}
