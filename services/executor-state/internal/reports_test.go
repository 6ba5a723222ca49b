package internal

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
)

// dispatch is an assigner whose answers the test defines.
type dispatch struct {
	controlv1.DispatchClient
	report func(context.Context, *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error)
}

func (h dispatch) ReportWorkers(ctx context.Context, req *controlv1.ReportWorkersRequest,
	_ ...grpc.CallOption) (*controlv1.ReportWorkersAnswer, error) {
	return h.report(ctx, req)
}

func newReports(report func(context.Context, *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer,
	error)) *Reports {
	r := NewReports(nil, func(_ string, fn func()) bool { fn(); return true })
	r.dispatch = dispatch{report: report}
	return r
}

// all answers every report.
func all(_ context.Context, req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
	answer := &controlv1.ReportWorkersAnswer{}
	for _, r := range req.GetReports() {
		answer.Answers = append(answer.Answers, &controlv1.ExecutorReportAnswer{Executor: r.GetExecutor(),
			Sequence: r.GetSequence()})
	}
	return answer, nil
}

type forwarded struct {
	sequence int64
	err      error
}

func forward(ctx context.Context, r *Reports, executor string, sequence int64) chan forwarded {
	done := make(chan forwarded, 1)
	go func() {
		answer, err := r.Forward(ctx, &controlv1.ExecutorReport{Executor: executor, Sequence: sequence})
		done <- forwarded{answer.GetSequence(), err}
	}()
	synctest.Wait()
	return done
}

// Reports that arrive during a call are sent together in the next call. A newer report of
// an executor replaces an older one.
func TestReportsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		r := newReports(func(ctx context.Context, req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer,
			error) {
			calls = append(calls, len(req.GetReports()))
			return all(ctx, req)
		})
		older := forward(t.Context(), r, "a", 1)
		other := forward(t.Context(), r, "b", 7)
		newer := forward(t.Context(), r, "a", 2)
		r.call(t.Context(), nil)
		if f := <-older; fault.Of(f.err) == nil || fault.Of(f.err).Kind != fault.Unavailable {
			t.Errorf("the older report was answered %+v", f)
		}
		if f := <-newer; f.err != nil || f.sequence != 2 {
			t.Errorf("the newer report was answered %+v", f)
		}
		if f := <-other; f.err != nil || f.sequence != 7 {
			t.Errorf("another executor's was answered %+v", f)
		}
		if len(calls) != 1 || calls[0] != 2 {
			t.Errorf("calls of %v reports", calls)
		}
	})
}

// Large reports are sent in as many calls as necessary, and none is lost.
func TestReportsFitMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []int
		r := newReports(func(ctx context.Context, req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer,
			error) {
			if size := proto.Size(req); size > 4<<20 {
				t.Errorf("a call of %d bytes", size)
			}
			calls = append(calls, len(req.GetReports()))
			return all(ctx, req)
		})
		var answers []<-chan forwarded
		for i := range 10 {
			report := &controlv1.ExecutorReport{Executor: string(rune('a' + i)), Sequence: 1, Workers: []*controlv1.WorkerReport{
				{Error: strings.Repeat("e", reportCallBytes/3)},
			}}
			done := make(chan forwarded, 1)
			go func() {
				a, err := r.Forward(t.Context(), report)
				done <- forwarded{a.GetSequence(), err}
			}()
			answers = append(answers, done)
		}
		synctest.Wait()
		var next *pendingReport
		for range 5 {
			next = r.call(t.Context(), next)
		}
		for _, answer := range answers {
			if f := <-answer; f.err != nil || f.sequence != 1 {
				t.Errorf("answered %+v", f)
			}
		}
		if !slices.Equal(calls, []int{2, 2, 2, 2, 2}) {
			t.Errorf("calls of %v reports", calls)
		}
	})
}

// Forward fails if the call fails, if the answer to the report is missing, or if no answer
// arrives in time.
func TestReportsWithoutAnswer(t *testing.T) {
	for name, report := range map[string]func(context.Context,
		*controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error){
		"left out": func(context.Context, *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
			return &controlv1.ReportWorkersAnswer{Answers: []*controlv1.ExecutorReportAnswer{{Executor: "other"}}}, nil
		},
		"fails": func(context.Context, *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
			return nil, fault.New(fault.Precondition, fault.ReasonNotLeader, "no")
		},
		"silent": func(ctx context.Context, _ *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				r := newReports(report)
				var running sync.WaitGroup
				running.Go(func() {
					if err := r.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				asked := time.Now()
				if f := <-forward(t.Context(), r, "a", 1); fault.Of(f.err) == nil || fault.Of(f.err).Kind != fault.Unavailable {
					t.Errorf("answered %+v", f)
				}
				if took := time.Since(asked); took > reportCallLimit {
					t.Errorf("after %v", took)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// If its caller cancels, Forward returns, and the report does not delay others.
func TestCanceledReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReports(all)
		ctx, cancel := context.WithCancel(t.Context())
		gone := forward(ctx, r, "a", 1)
		cancel()
		if f := <-gone; f.err == nil {
			t.Error("answered")
		}
		here := forward(t.Context(), r, "b", 1)
		r.call(t.Context(), nil)
		if f := <-here; f.err != nil {
			t.Error(f.err)
		}
	})
}
