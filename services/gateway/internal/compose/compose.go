// Package compose answers calls that need several services: why a reservation is pending, and
// the findings of all services.
//
//	ExplainReservation ──┬─ position in the queue ──▶ registry
//	                     └─ executors that fit now ─▶ executor-state
//	ListFindings ────────┬─ registry
//	                     ├─ executor-state
//	                     └─ assigner
//
// It decides nothing and stores nothing. It promises that if one service does not answer, the
// answer contains the parts of the others, names the missing part, and arrives well before
// the caller's deadline.
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

// patience is how long an answer waits for a part that may be missing. A fast failover takes a
// fraction of it.
const patience = 2 * time.Second

// Server answers berth.v1.Explanations and berth.v1.Findings.
type Server struct {
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedFindingsServer
	queue     controlv1.QueueClient
	inventory controlv1.InventoryClient
	dispatch  controlv1.DispatchClient
}

// New makes a server. Calls must find the leader of each service.
func New(calls grpc.ClientConnInterface) *Server {
	return &Server{
		queue:     controlv1.NewQueueClient(calls),
		inventory: controlv1.NewInventoryClient(calls),
		dispatch:  controlv1.NewDispatchClient(calls),
	}
}

// brief bounds the time for a part by patience, and by half of the caller's remaining time.
// The rest is for the answer.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := patience
	if deadline, has := ctx.Deadline(); has {
		wait = min(wait, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, wait)
}

// ended returns the error of a call whose context has ended; nil before.
func ended(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return status.Error(codes.DeadlineExceeded,
			"the deadline of the call passed before the services answered: give it more time")
	}
	return ctx.Err()
}
