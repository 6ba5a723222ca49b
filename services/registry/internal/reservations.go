package internal

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/request"
)

// Reservations serves berth.v1.Reservations from the loop.
type Reservations struct {
	berthv1.UnimplementedReservationsServer
	loop    loop.Owner[*queue.Core]
	tenants func() *model.Tenants
	refused refusals
	history history
}

// NewReservations returns a server that answers from the loop's core. tenants returns the
// current tenants; a nil function returns none.
func NewReservations(l loop.Owner[*queue.Core], tenants func() *model.Tenants) *Reservations {
	return &Reservations{loop: l, tenants: tenants}
}

// UpsertReservation implements berth.v1.Reservations.
func (s *Reservations) UpsertReservation(ctx context.Context,
	req *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
	answer, err := s.upsert(ctx, req)
	s.refused.count(err)
	return answer, err
}

func (s *Reservations) upsert(ctx context.Context, req *berthv1.UpsertReservationRequest) (*berthv1.Reservation,
	error) {
	upsert, err := wire.UpsertOf(req)
	if err != nil {
		return nil, err
	}
	upsert.Trace, upsert.Tenants = tracing.Of(ctx), current(s.tenants)
	value, err := s.loop.Do(ctx, upsert)
	if err != nil {
		return nil, err
	}
	return changed(value.(queue.Upserted)), nil
}

// changed returns the answer to an upsert or a bind.
func changed(done queue.Upserted) *berthv1.Reservation {
	answer := shown(done.View, false)
	answer.Change = berthv1.UpsertReservationRequest_Change(done.Change).Enum()
	return answer
}

func shown(v queue.View, forList bool) *berthv1.Reservation {
	shown := wire.ReservationView{
		Reservation: v.Reservation, State: v.State, Reason: v.Reason, Message: v.Message, Position: v.Position,
		Counts: v.Counts, HeldUntil: v.HeldUntil, Rating: v.Rating,
		Pools: v.Pools, Ends: v.Ends, FieldResults: v.FieldResults, RequestedCount: v.RequestedCount,
		RequestedWorkers: v.RequestedWorkers, BoundTask: v.BoundTask,
	}
	if v.Position > 0 {
		shown.Avoided = model.AvoidedAt(v.Reservation.Failed, time.Now())
	}
	return wire.Reservation(shown, forList)
}

// GetReservation implements berth.v1.Reservations.
func (s *Reservations) GetReservation(ctx context.Context, req *berthv1.GetReservationRequest) (*berthv1.Reservation,
	error) {
	key := keyOf(req.GetJob(), req.GetStage(), req.GetName())
	var view queue.View
	found := false
	if err := s.loop.Read(ctx, true, func(c *queue.Core) { view, found = c.Get(key) }); err != nil {
		return nil, err
	}
	if !found {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation %s", key)
	}
	return shown(view, false), nil
}

// BindReservation implements berth.v1.Reservations.
func (s *Reservations) BindReservation(ctx context.Context, req *berthv1.BindReservationRequest) (*berthv1.Reservation,
	error) {
	task, err := wire.BindTaskOf(req.GetTask())
	if err != nil {
		return nil, err
	}
	value, err := s.loop.Do(ctx, request.Bind{
		Key: keyOf(req.GetJob(), req.GetStage(), req.GetName()), RequestID: req.GetRequestId(), IfEpoch: req.GetIfEpoch(),
		Task: task, Pool: req.GetPool(), KeepHeld: req.GetKeepHeld(),
	})
	if err != nil {
		return nil, err
	}
	return changed(value.(queue.Upserted)), nil
}

// CancelReservation implements berth.v1.Reservations.
func (s *Reservations) CancelReservation(ctx context.Context,
	req *berthv1.CancelReservationRequest) (*berthv1.CancelAnswer, error) {
	grace, err := wire.StopGraceOf(req.GetGrace())
	if err != nil {
		return nil, err
	}
	return s.cancel(ctx, request.Cancel{
		Key: keyOf(req.GetJob(), req.GetStage(), req.GetName()), RequestID: req.GetRequestId(), IfEpoch: req.GetIfEpoch(),
		Grace: grace,
	})
}

// CancelJob implements berth.v1.Reservations.
func (s *Reservations) CancelJob(ctx context.Context, req *berthv1.CancelJobRequest) (*berthv1.CancelAnswer, error) {
	grace, err := wire.StopGraceOf(req.GetGrace())
	if err != nil {
		return nil, err
	}
	return s.cancel(ctx, request.CancelJob{Job: req.GetJob(), RequestID: req.GetRequestId(), Grace: grace})
}

func (s *Reservations) cancel(ctx context.Context, r any) (*berthv1.CancelAnswer, error) {
	value, err := s.loop.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	cancelled := value.(queue.Cancelled)
	return &berthv1.CancelAnswer{Cancelled: int32(cancelled.Count), Unknown: wire.IfTrue(cancelled.Unknown)}, nil
}

func age(now, since time.Time) *durationpb.Duration {
	return durationpb.New(now.Sub(since).Round(time.Millisecond))
}

func keyOf(job, stage, name string) model.Key {
	return model.Key{Job: job, Stage: stage, Name: cmp.Or(name, model.MainName)}
}
