package internal

import (
	"context"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
)

// Queue serves control.v1.Queue from the loop: the registry's part of the answers that
// the gateway combines.
type Queue struct {
	controlv1.UnimplementedQueueServer
	loop loop.Owner[*queue.Core]
}

// NewQueue returns a server that answers from the loop's core.
func NewQueue(l loop.Owner[*queue.Core]) *Queue { return &Queue{loop: l} }

// Standing implements control.v1.Queue. The gateway adds how many workers fit.
func (s *Queue) Standing(ctx context.Context, req *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
	key := keyOf(req.GetJob(), req.GetStage(), req.GetName())
	var standing queue.Standing
	found := false
	if err := s.loop.Read(ctx, true, func(c *queue.Core) { standing, found = c.Standing(key) }); err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s", key)
	}
	answer := &berthv1.Explanation{
		Reservation: shown(standing.View, true), Needed: int32(standing.Reservation.Workers.Len()),
		Reason: string(standing.Reason), Message: standing.Message,
	}
	if standing.Group == "" {
		return answer, nil
	}
	answer.Requeued, answer.Failure = standing.Earlier, string(standing.Failure)
	now := time.Now()
	answer.Group, answer.Position, answer.Queued = standing.Group, int32(standing.Position), int32(standing.Queued)
	answer.Head, answer.HeadAge = wire.Key(standing.Head), age(now, standing.HeadSince)
	answer.Age, answer.Tried = age(now, standing.Reservation.QueuedAt()), wire.Timestamp(standing.Tried)
	return answer, nil
}

// QueueFindings implements control.v1.Queue.
func (s *Queue) QueueFindings(ctx context.Context, _ *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer,
	error) {
	var findings []queue.Finding
	if err := s.loop.Read(ctx, false, func(c *queue.Core) { findings = c.Findings(time.Now()) }); err != nil {
		return nil, err
	}
	return replica.Findings(s.loop.Status(), model.ServiceRegistry, findings), nil
}
