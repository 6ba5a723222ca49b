package internal

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/dispatch"
)

// Assignments serves berth.v1.Assignments.
type Assignments struct {
	berthv1.UnimplementedAssignmentsServer
	loop    loop.Owner[*dispatch.Core]
	members *Members
	signals *signals
}

// NewAssignments returns a service that uses the core that the loop owns, and lists members.
// agents sends signals; without it, no worker gets one.
func NewAssignments(l loop.Owner[*dispatch.Core], members *Members, agents *Sender) *Assignments {
	return &Assignments{loop: l, members: members, signals: newSignals(l, agents)}
}

// SignalWorkers implements berth.v1.Assignments.
func (s *Assignments) SignalWorkers(ctx context.Context,
	req *berthv1.SignalWorkersRequest) (*berthv1.SignalWorkersAnswer, error) {
	return s.signals.send(ctx, req)
}

// ListMembers implements berth.v1.Assignments.
func (s *Assignments) ListMembers(ctx context.Context,
	req *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer, error) {
	return s.members.list(ctx, req, nil)
}

// SetMembers implements berth.v1.Assignments.
func (s *Assignments) SetMembers(ctx context.Context,
	req *berthv1.SetMembersRequest) (*berthv1.SetMembersAnswer, error) {
	return s.members.set(ctx, req)
}

// maxCleared is the maximum number of workers in one ClearQuarantine call.
const maxCleared = 1000

// ClearQuarantine implements berth.v1.Assignments.
func (s *Assignments) ClearQuarantine(ctx context.Context,
	req *berthv1.ClearQuarantineRequest) (*berthv1.ClearQuarantineAnswer, error) {
	switch n := len(req.GetWorkers()); {
	case req.GetExecutor() == "":
		return nil, fault.BadField(fault.ReasonRequired, "executor", "name the executor on which the workers are quarantined")
	case n == 0:
		return nil, fault.BadField(fault.ReasonRequired, "workers",
			"name the workers that have exited, each as in its assignment")
	case n > maxCleared:
		return nil, fault.BadField(fault.ReasonTooLarge, "workers", "must be at most %d, got %d", maxCleared, n)
	}
	request := dispatch.Clear{Executor: req.GetExecutor(), RequestID: req.GetRequestId()}
	for i, w := range req.GetWorkers() {
		for _, part := range []struct {
			name    string
			missing bool
		}{{"job", w.GetJob() == ""}, {"stage", w.GetStage() == ""}, {"epoch", w.GetEpoch() <= 0}} {
			if part.missing {
				return nil, fault.BadField(fault.ReasonRequired, fmt.Sprintf("workers[%d].%s", i, part.name),
					"name the worker as in its assignment")
			}
		}
		request.Workers = append(request.Workers, dispatch.Assigned{
			Worker: model.Worker{Job: w.GetJob(), Stage: w.GetStage(),
				ID: model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}},
			Epoch: w.GetEpoch(),
		})
	}
	value, err := s.loop.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	return &berthv1.ClearQuarantineAnswer{Cleared: int32(value.(dispatch.Cleared).Count)}, nil
}

// ListAssignments implements berth.v1.Assignments.
func (s *Assignments) ListAssignments(ctx context.Context,
	req *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	switch {
	case req.GetStage() != "" && req.GetJob() == "":
		return nil, fault.BadField(fault.ReasonInvalid, "stage", "requires job")
	case req.GetReservation() != "" && req.GetStage() == "":
		return nil, fault.BadField(fault.ReasonInvalid, "reservation", "requires stage")
	}
	filter := dispatch.Filter{Job: req.GetJob(), Stage: req.GetStage(), Name: req.GetReservation(),
		Executor: req.GetExecutor(), State: wire.WorkerState(req.GetState())}
	// The core is read after the revision, so the list is never older than the revision.
	revision := s.loop.Status().Revision
	answer := &berthv1.ListAssignmentsAnswer{Revision: revision, Cursor: wire.CursorOf(revision)}
	var bad error
	err = s.loop.Read(ctx, false, func(c *dispatch.Core) {
		list, next, err := c.Assignments(filter, req.GetPageToken(), size)
		bad = err
		answer.NextPageToken = next
		for _, a := range list {
			m := &berthv1.Assignment{
				Job: a.Key.Job, Stage: a.Key.Stage, Reservation: a.Key.Name, Uid: a.UID, Epoch: a.Epoch,
				Index: a.ID.Index, Number: a.ID.Number, Executor: a.Executor, State: berthv1.Assignment_State(a.State),
				Since: wire.Timestamp(a.Since.Time()), Attempts: a.Attempts, ExitCode: a.ExitCode,
				Requeued: a.Requeue,
			}
			if a.Reason != "" {
				m.Reason = proto.String(string(a.Reason))
			}
			if !a.LastError.IsEmpty() {
				m.LastError = proto.String(a.LastError.String())
			}
			answer.Assignments = append(answer.Assignments, m)
		}
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, err
	}
	return answer, nil
}
