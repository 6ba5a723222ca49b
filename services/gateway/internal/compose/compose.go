// Package compose answers what no service knows alone: why a reservation
// waits, and what is wrong anywhere.
//
//	ExplainReservation ──┬─ its place in the queue ─▶ registry
//	                     └─ what fits now ──────────▶ executor-state
//	ListFindings ────────┬─ registry
//	                     ├─ executor-state
//	                     └─ assigner
//
// It decides nothing and keeps nothing. It promises that a service which does
// not answer hides no other one's part: the answer then says what is missing,
// and comes well before the caller's deadline.
package compose

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
)

// patience is how long a part of an answer is waited for that the answer can do
// without. A change of leader that is proved takes a fraction of it.
const patience = 2 * time.Second

// Server answers berth.v1.Explanations and berth.v1.Findings.
type Server struct {
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedFindingsServer
	queue     controlv1.QueueClient
	inventory controlv1.InventoryClient
	dispatch  controlv1.DispatchClient
}

// New makes a server that asks through calls, which finds the leader of each
// service.
func New(calls grpc.ClientConnInterface) *Server {
	return &Server{
		queue:     controlv1.NewQueueClient(calls),
		inventory: controlv1.NewInventoryClient(calls),
		dispatch:  controlv1.NewDispatchClient(calls),
	}
}

// brief bounds a part by patience, and by half of the time that the caller has
// left: the rest is for the answer.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := patience
	if deadline, has := ctx.Deadline(); has {
		wait = min(wait, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, wait)
}

// ended is the error of a call whose context has ended, nil before.
func ended(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return status.Error(codes.DeadlineExceeded, "the deadline of the call passed before the services answered: give it more time")
	}
	return ctx.Err()
}
