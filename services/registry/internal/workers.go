package internal

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/queue"
)

// CancelWorkers implements berth.v1.Reservations.
func (s *Reservations) CancelWorkers(ctx context.Context, req *berthv1.CancelWorkersRequest) (*berthv1.CancelWorkersAnswer, error) {
	request := queue.CancelWorkers{Job: req.GetJob(), Stage: req.GetStage(), RequestID: req.GetRequestId()}
	for _, workerID := range req.GetWorkers() {
		request.Workers = append(request.Workers, model.WorkerID{Index: workerID.GetIndex(), Number: workerID.GetNumber()})
	}
	if err := queue.ValidateCancelWorkers(request); err != nil {
		return nil, err
	}
	value, err := s.loop.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	return &berthv1.CancelWorkersAnswer{Cancelled: int32(value.(queue.WorkersCancelled).Count)}, nil
}
