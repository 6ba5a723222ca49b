package internal

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// CancelWorkers implements berth.v1.Reservations.
func (s *Reservations) CancelWorkers(ctx context.Context,
	req *berthv1.CancelWorkersRequest) (*berthv1.CancelWorkersAnswer, error) {
	grace, err := wire.StopGraceOf(req.GetGrace())
	if err != nil {
		return nil, err
	}
	r := request.CancelWorkers{Job: req.GetJob(), Stage: req.GetStage(), RequestID: req.GetRequestId(), Grace: grace}
	for _, workerID := range req.GetWorkers() {
		r.Workers = append(r.Workers, model.WorkerID{Index: workerID.GetIndex(), Number: workerID.GetNumber()})
	}
	value, err := s.loop.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	cancelled := value.(queue.WorkersCancelled)
	return &berthv1.CancelWorkersAnswer{Cancelled: int32(cancelled.Count), Unknown: wire.IfTrue(cancelled.Unknown)}, nil
}
