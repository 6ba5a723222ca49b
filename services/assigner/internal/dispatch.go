package internal

import (
	"context"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// Dispatch serves control.v1.Dispatch.
type Dispatch struct {
	controlv1.UnimplementedDispatchServer
	loop    loop.Owner[*dispatch.Core]
	outputs *outputs
}

// NewDispatch returns a service that uses the core that the loop owns. agents sends requests
// for output; without it, no output can be read.
func NewDispatch(l loop.Owner[*dispatch.Core], agents *Sender) *Dispatch {
	return &Dispatch{loop: l, outputs: newOutputs(l, agents)}
}

// ReadOutput implements control.v1.Dispatch.
func (s *Dispatch) ReadOutput(ctx context.Context, req *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	return s.outputs.read(ctx, req)
}

// CreateAssignmentTasks implements control.v1.Dispatch.
func (s *Dispatch) CreateAssignmentTasks(ctx context.Context,
	req *controlv1.CreateTasksRequest) (*controlv1.CreateTasksAnswer, error) {
	create := model.Dispatch{Term: req.GetTerm()}
	for _, t := range req.GetTasks() {
		create.Tasks = append(create.Tasks, model.DispatchTask{Key: wire.KeyOf(t.GetKey()), UID: t.GetUid(), Mod: t.GetMod(),
			Lease: t.GetLease()})
	}
	value, err := s.loop.Do(ctx, create)
	if err != nil {
		return nil, err
	}
	answer := &controlv1.CreateTasksAnswer{}
	for _, o := range value.([]model.DispatchOutcome) {
		result := controlv1.CreateOutcome_REFUSED
		if o.Accepted {
			result = controlv1.CreateOutcome_TAKEN
		}
		answer.Outcomes = append(answer.Outcomes, &controlv1.CreateOutcome{Uid: o.UID, Result: result,
			Reason: string(o.Reason)})
	}
	return answer, nil
}

// ReportWorkers implements control.v1.Dispatch. If a call has several reports, the answer
// omits the refused reports, and their agents send them again. If a call has a single
// report and the report is refused, the call returns an error.
func (s *Dispatch) ReportWorkers(ctx context.Context,
	req *controlv1.ReportWorkersRequest) (*controlv1.ReportWorkersAnswer, error) {
	reports := make(dispatch.Reports, 0, len(req.GetReports()))
	for _, r := range req.GetReports() {
		if err := wire.CheckReport(r); err != nil && len(req.GetReports()) == 1 {
			return nil, err
		} else if err == nil {
			reports = append(reports, reportOf(r))
		}
	}
	value, err := s.loop.Do(ctx, reports)
	if err != nil {
		return nil, err
	}
	answer := &controlv1.ReportWorkersAnswer{}
	for _, result := range value.([]dispatch.ReportResult) {
		switch {
		case result.Err == nil:
			answer.Answers = append(answer.Answers, reportAnswer(result.Reported))
		case len(req.GetReports()) == 1:
			return nil, result.Err
		}
	}
	return answer, nil
}

// DispatchFindings implements control.v1.Dispatch.
func (s *Dispatch) DispatchFindings(ctx context.Context, _ *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer,
	error) {
	var findings []dispatch.Finding
	if err := s.loop.Read(ctx, false, func(c *dispatch.Core) { findings = c.Findings(time.Now()) }); err != nil {
		return nil, err
	}
	return replica.Findings(s.loop.Status(), model.ServiceAssigner, findings), nil
}

func reportOf(r *controlv1.ExecutorReport) dispatch.Report {
	report := dispatch.Report{Executor: r.GetExecutor(), Incarnation: r.GetIncarnation(), Sequence: r.GetSequence(),
		Complete: r.GetComplete()}
	for _, w := range r.GetWorkers() {
		state := wire.WorkerState(w.GetState())
		status := dispatch.WorkerStatus{
			Worker: model.Worker{Job: w.GetJob(), Stage: w.GetStage(),
				ID: model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}},
			Epoch: w.GetEpoch(), UID: w.GetUid(),
			Status: dispatch.Status{State: state, ExitCode: w.ExitCode, Signal: w.GetSignal(), Error: w.GetError(),
				Reason: wire.EndReason(state, w.GetReason()), NeverStarted: w.GetNeverStarted(),
				BadTask: w.GetBadTask(), Host: w.GetHost()},
		}
		if w.GetSince() != nil {
			status.Begun = w.GetSince().AsTime()
		}
		if state.Terminal() && w.GetSince() != nil && r.GetSent() != nil {
			status.EndedFor = r.GetSent().AsTime().Sub(w.GetSince().AsTime())
		}
		status.Queued = state == model.WorkerStarting && w.GetSince() == nil
		report.Workers = append(report.Workers, status)
	}
	return report
}

func reportAnswer(reported dispatch.Reported) *controlv1.ExecutorReportAnswer {
	answer := &controlv1.ExecutorReportAnswer{Executor: reported.Executor, Sequence: reported.Sequence,
		Orphans: int32(reported.Orphans), Term: reported.Term}
	for _, w := range reported.Ended {
		answer.Ended = append(answer.Ended, &controlv1.WorkerReport{
			Job: w.Worker.Job, Stage: w.Worker.Stage, Index: w.Worker.ID.Index, Number: w.Worker.ID.Number,
			Epoch: w.Epoch, Uid: w.UID, State: berthv1.Assignment_State(w.State),
		})
	}
	return answer
}
