// Package compose answers calls that need several services, even if one of the services
// does not answer. The answer then contains the parts of the other services, names the
// missing part, and arrives well before the caller's deadline. The calls explain why a
// reservation is pending, and list the findings of all services. The package also adds the
// event streams of this gateway to the tenants that the registry lists, and finds the
// executors of ended workers in the events of their jobs, to read the output of the workers.
//
//	ExplainReservation ──┬─ position in the queue ──▶ registry
//	                     └─ executors that fit now ─▶ executor-state
//	ListFindings ────────┬─ registry
//	                     ├─ executor-state
//	                     ├─ assigner
//	                     └─ this gateway
//	ReadOutput ──────────┬─ events, if the worker has no assignment
//	                     └─ assigner ─▶ agent
//
// The package stores nothing and makes no decisions.
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

// patience is the maximum time that an answer waits for the part of one service. A fast
// failover takes a fraction of this time.
const patience = 2 * time.Second

// Server answers berth.v1.Explanations, berth.v1.Findings, berth.v1.Tenants and
// berth.v1.Outputs.
type Server struct {
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedFindingsServer
	berthv1.UnimplementedTenantsServer
	berthv1.UnimplementedOutputsServer
	// Own, if set, returns the findings of the gateway itself. It must be set before the first
	// call.
	Own       func() []*berthv1.Finding
	queue     controlv1.QueueClient
	inventory controlv1.InventoryClient
	dispatch  controlv1.DispatchClient
	tenants   berthv1.TenantsClient
	streams   func() map[string]int
	events    Events
}

// Events has the stored events of jobs.
type Events interface {
	// Stored calls each with the stored events of a job in order.
	Stored(ctx context.Context, job string, each func(*berthv1.Event)) error
}

// New returns a server. calls must send each call to the leader of its service. If streams
// is set, it returns the number of open event streams by tenant. If events is nil, only the
// output of workers with an assignment is found.
func New(calls grpc.ClientConnInterface, streams func() map[string]int, events Events) *Server {
	return &Server{
		queue:     controlv1.NewQueueClient(calls),
		inventory: controlv1.NewInventoryClient(calls),
		dispatch:  controlv1.NewDispatchClient(calls),
		tenants:   berthv1.NewTenantsClient(calls),
		streams:   streams,
		events:    events,
	}
}

// brief returns a context for the call that gets one part. It limits the time to patience,
// and to half of the caller's remaining time, so that time for the answer is left.
func brief(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := patience
	if deadline, has := ctx.Deadline(); has {
		wait = min(wait, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, wait)
}

// ended returns the error of a call whose context has ended, or nil.
func ended(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return status.Error(codes.DeadlineExceeded,
			"the deadline of the call passed before the services answered: give it more time")
	}
	return ctx.Err()
}
