package internal

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// The limits of forwarded reports.
const (
	reportsInCall   = 256
	reportsWaiting  = 4096
	reportCalls     = 4
	reportCallLimit = 10 * time.Second
	// reportCallBytes limits the reports of a call, and merged reports, because the assigner
	// handles all reports of a call in one step. A single report of an agent may be larger,
	// up to the maximum size of a message.
	reportCallBytes = 4<<20 - 256<<10
)

// Reports forwards the reports of agents to the assigner. A call contains the reports of
// many agents: all reports that arrived during the previous calls.
type Reports struct {
	dispatch controlv1.DispatchClient
	waiting  chan pendingReport
	guard    guard
}

type pendingReport struct {
	report *controlv1.ExecutorReport
	answer chan *controlv1.ExecutorReportAnswer // closed without an answer if the report must be repeated
}

// guard calls a function that handles messages of a peer, and reports whether it returned or
// panicked.
type guard func(peer string, fn func()) (returned bool)

// NewReports returns a forwarder that calls the assigner through a gateway. Run runs it.
func NewReports(gateway grpc.ClientConnInterface, guard guard) *Reports {
	return &Reports{
		dispatch: controlv1.NewDispatchClient(gateway), waiting: make(chan pendingReport, reportsWaiting),
		guard: guard,
	}
}

// Forward sends a report to the assigner and waits for the answer. If Forward returns an
// error, the agent must repeat the report.
func (r *Reports) Forward(ctx context.Context, report *controlv1.ExecutorReport) (*controlv1.ExecutorReportAnswer,
	error) {
	again := fault.New(fault.Unavailable, fault.ReasonUnavailable, "the assigner did not answer the report in time")
	w := pendingReport{report, make(chan *controlv1.ExecutorReportAnswer, 1)}
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

// Run forwards reports until ctx ends.
func (r *Reports) Run(ctx context.Context) error {
	var calling sync.WaitGroup
	for range reportCalls {
		calling.Go(func() {
			var next *pendingReport
			for ctx.Err() == nil {
				first := next
				next = nil
				r.guard(model.ServiceAssigner, func() { next = r.call(ctx, first) })
			}
		})
	}
	calling.Wait()
	return nil
}

// batch holds the reports of one call, one report for each executor.
type batch struct {
	reports []pendingReport
	place   map[string]int // the index in reports, by executor
}

// add adds a report. If the batch has a report of the same executor from another stream,
// the new report replaces it, and the old report must be repeated.
func (b *batch) add(w pendingReport) {
	executor := w.report.GetExecutor()
	if i, again := b.place[executor]; again {
		close(b.reports[i].answer)
		b.reports[i] = w
		return
	}
	b.place[executor] = len(b.reports)
	b.reports = append(b.reports, w)
}

// collect waits for a report, and collects all pending reports that fit in a call with
// it. It returns the first report that does not fit as next, for the next call.
func (r *Reports) collect(ctx context.Context, first *pendingReport) (b *batch, next *pendingReport) {
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
	for bytes := proto.Size(first.report); len(b.reports) < reportsInCall; {
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

// call sends the pending reports, beginning with first, which did not fit in the previous
// call. It returns the report that does not fit now.
func (r *Reports) call(ctx context.Context, first *pendingReport) (next *pendingReport) {
	b, next := r.collect(ctx, first)
	request := &controlv1.ReportWorkersRequest{}
	for _, w := range b.reports {
		request.Reports = append(request.Reports, w.report)
	}
	if len(request.Reports) == 0 {
		return nil
	}
	defer func() {
		for _, i := range b.place {
			close(b.reports[i].answer)
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
		if !ok || wire.CheckReportAnswer(a, len(b.reports[i].report.GetWorkers())) != nil {
			continue // the answer counts as missing
		}
		b.reports[i].answer <- a
		delete(b.place, a.GetExecutor())
	}
	return next
}
