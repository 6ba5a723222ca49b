package internal

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/assigner/handout"
)

// Assignments is berth.v1.Assignments over the loop.
type Assignments struct {
	berthv1.UnimplementedAssignmentsServer
	loop loop.Owner[*handout.Core]
}

// NewAssignments serves the loop's core.
func NewAssignments(l loop.Owner[*handout.Core]) *Assignments { return &Assignments{loop: l} }

// ListAssignments implements berth.v1.Assignments.
func (s *Assignments) ListAssignments(ctx context.Context, req *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	filter := handout.Filter{Job: req.GetJob(), Executor: req.GetExecutor(), State: model.WorkerState(req.GetState())}
	// Read before the core is, which may know of more by then and never of less.
	revision := s.loop.Status().Revision
	answer := &berthv1.ListAssignmentsAnswer{Revision: revision, Cursor: wire.CursorOf(revision)}
	var bad error
	err = s.loop.Read(ctx, false, func(c *handout.Core) {
		list, next, err := c.Assignments(filter, req.GetPageToken(), size)
		bad = err
		answer.NextPageToken = next
		for _, a := range list {
			m := &berthv1.Assignment{
				Job: a.Key.Job, Stage: a.Key.Stage, Reservation: a.Key.Name, Uid: a.UID, Epoch: a.Epoch,
				Index: a.Seat.Index, Number: a.Seat.Number, Executor: a.Executor, State: berthv1.Assignment_State(a.State),
				Since: wire.Timestamp(a.Since), Attempts: a.Attempts, ExitCode: a.ExitCode,
				Requeued: a.Requeued,
			}
			if a.Reason != "" {
				m.Reason = proto.String(string(a.Reason))
			}
			if a.LastError != "" {
				m.LastError = &a.LastError
			}
			answer.Assignments = append(answer.Assignments, m)
		}
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, err
	}
	return answer, nil
}
