package internal

import (
	"context"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// FlushReservations implements berth.v1.Reservations.
func (s *Reservations) FlushReservations(ctx context.Context,
	req *berthv1.FlushReservationsRequest) (*berthv1.CancelAnswer, error) {
	return s.cancel(ctx, request.Flush{Job: req.GetJob(), Group: req.GetGroup(), RequestID: req.GetRequestId()})
}

// MarkReady implements berth.v1.Reservations.
func (s *Reservations) MarkReady(ctx context.Context, _ *berthv1.MarkReadyRequest) (*berthv1.MarkReadyAnswer, error) {
	value, err := s.loop.Do(ctx, queue.MarkReady{})
	if err != nil {
		return nil, err
	}
	return &berthv1.MarkReadyAnswer{ReadySince: wire.Timestamp(value.(queue.MarkedReady).Since)}, nil
}
