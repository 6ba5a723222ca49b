package internal

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// The bounds of forwarded reports.
const (
	reportsInCall   = 256
	reportsWaiting  = 4096
	reportCalls     = 4
	reportCallLimit = 10 * time.Second
	// reportCallBytes bounds the reports of a call, and what reports are joined
	// into: the assigner decides all of them in one step. A single report of an agent
	// may be larger, as large as a message may be.
	reportCallBytes = 4<<20 - 256<<10
)

// Reports forwards what agents report to the assigner, many agents to a call:
// whatever has come while the last calls were under way.
type Reports struct {
	dispatch controlv1.DispatchClient
	waiting  chan waitingReport
	// Guard calls what handles the assigner's answers, and reports whether it
	// returned; by default it only calls.
	Guard func(peer string, fn func()) bool
}

type waitingReport struct {
	report *controlv1.ExecutorReport
	answer chan *controlv1.ExecutorReportAnswer // closed without one when it has to be brought again
}

// unguarded only calls.
func unguarded(_ string, fn func()) bool {
	fn()
	return true
}

// NewReports forwards through a gateway; Run runs it.
func NewReports(gateway grpc.ClientConnInterface) *Reports {
	return &Reports{
		dispatch: controlv1.NewDispatchClient(gateway), waiting: make(chan waitingReport, reportsWaiting),
		Guard: unguarded,
	}
}

// Forward brings a report to the assigner and waits for its answer. Without
// one in time the report is to be brought again.
func (r *Reports) Forward(ctx context.Context, report *controlv1.ExecutorReport) (*controlv1.ExecutorReportAnswer, error) {
	again := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the report has not reached the assigner")
	w := waitingReport{report, make(chan *controlv1.ExecutorReportAnswer, 1)}
	select {
	case r.waiting <- w:
	case <-ctx.Done():
		return nil, again.Because(ctx.Err())
	}
	select {
	case answer, ok := <-w.answer:
		if !ok {
			return nil, again
		}
		return answer, nil
	case <-ctx.Done():
		return nil, again.Because(ctx.Err())
	}
}

// Run forwards until ctx ends.
func (r *Reports) Run(ctx context.Context) error {
	done := make(chan struct{}, reportCalls)
	for range reportCalls {
		go func() {
			defer func() { done <- struct{}{} }()
			var next *waitingReport
			for ctx.Err() == nil {
				first := next
				next = nil
				r.Guard(model.ServiceAssigner, func() { next = r.call(ctx, first) })
			}
		}()
	}
	for range reportCalls {
		<-done
	}
	return nil
}

// batch is the reports of one call, one of each executor.
type batch struct {
	waiting []waitingReport
	place   map[string]int // of an executor's
}

// add takes a report. A later one of the same executor, from another of its
// streams, takes the place of the earlier, which is to be brought again.
func (b *batch) add(w waitingReport) {
	executor := w.report.GetExecutor()
	if i, again := b.place[executor]; again {
		close(b.waiting[i].answer)
		b.waiting[i] = w
		return
	}
	b.place[executor] = len(b.waiting)
	b.waiting = append(b.waiting, w)
}

// collect waits for a report and takes those that wait with it, as many as fit a
// message. The first that does not is answered as next: it goes with the next call.
func (r *Reports) collect(ctx context.Context, first *waitingReport) (b *batch, next *waitingReport) {
	b = &batch{place: map[string]int{}}
	if first == nil {
		select {
		case <-ctx.Done():
			return b, nil
		case w := <-r.waiting:
			first = &w
		}
	}
	b.add(*first)
	for bytes := proto.Size(first.report); len(b.waiting) < reportsInCall; {
		select {
		case w := <-r.waiting:
			if bytes += proto.Size(w.report); bytes > reportCallBytes {
				return b, &w
			}
			b.add(w)
		default:
			return b, nil
		}
	}
	return b, nil
}

// call brings what waits, first what did not fit before, and answers what does not
// fit now.
func (r *Reports) call(ctx context.Context, first *waitingReport) (next *waitingReport) {
	b, next := r.collect(ctx, first)
	request := &controlv1.ReportWorkersRequest{}
	for _, w := range b.waiting {
		request.Reports = append(request.Reports, w.report)
	}
	if len(request.Reports) == 0 {
		return nil
	}
	defer func() {
		for _, i := range b.place {
			close(b.waiting[i].answer)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, reportCallLimit)
	defer cancel()
	answer, err := r.dispatch.ReportWorkers(ctx, request)
	if err != nil {
		return next
	}
	for _, a := range answer.GetAnswers() {
		i, ok := b.place[a.GetExecutor()]
		if !ok || wire.CheckReportAnswer(a, len(b.waiting[i].report.GetWorkers())) != nil {
			continue // as one that is missing
		}
		b.waiting[i].answer <- a
		delete(b.place, a.GetExecutor())
	}
	return next
}
