// Package replicatest is a replica of any service, on a real socket, whose
// answers and health a test sets.
package replicatest

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/testkit/porttest"
)

// Answers are what a replica answers; a nil function is an unknown method.
type Answers struct {
	Upsert   func(context.Context, *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error)
	Get      func(context.Context, *berthv1.GetReservationRequest) (*berthv1.Reservation, error)
	Pending  func(context.Context, *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer, error)
	Usage    func(context.Context, *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error)
	Skus     func(context.Context, *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error)
	Standing func(context.Context, *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error)
	Findings func(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error)
	Cycle    func(context.Context, *controlv1.CycleRequest) (*controlv1.CycleAnswer, error)
	Relay    func(grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error
	Replica  *berthv1.Replica
	Resign   func(term int64) error
}

// Replica is a running replica.
type Replica struct {
	*rpc.Server
	Address string
}

// Start starts a replica on an address; the empty one picks a port. It stops
// with the test.
func Start(t testing.TB, address string, answers Answers) *Replica {
	t.Helper()
	if address == "" {
		address = porttest.Hold(t)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &Replica{rpc.NewServer(rpc.ServerOptions{}), l.Addr().String()}
	berthv1.RegisterReservationsServer(r, &reservations{answers: answers})
	berthv1.RegisterUsageServer(r, &usage{answers: answers})
	berthv1.RegisterCatalogServer(r, &catalog{answers: answers})
	controlv1.RegisterQueueServer(r, &queue{answers: answers})
	controlv1.RegisterInventoryServer(r, &inventory{answers: answers})
	controlv1.RegisterHeartbeatsServer(r, &heartbeats{answers: answers})
	controlv1.RegisterReplicasServer(r, &replicas{answers: answers})
	var served sync.WaitGroup
	served.Go(func() { r.Serve(l) }) //nolint:errcheck // the end of the test
	t.Cleanup(func() {
		r.Stop()
		served.Wait()
	})
	return r
}

// Lead makes the replica the serving leader of a service, or stops that.
func (r *Replica) Lead(service string, leads bool) { r.SetServing(rpc.LeaderHealth(service), leads) }

// NotLeader is what a replica answers that does not lead.
func NotLeader() error {
	return fault.New(fault.Precondition, fault.ReasonNotLeader, "another replica leads")
}

type reservations struct {
	berthv1.UnimplementedReservationsServer
	answers Answers
}

func (r *reservations) UpsertReservation(ctx context.Context, req *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
	if r.answers.Upsert == nil {
		return r.UnimplementedReservationsServer.UpsertReservation(ctx, req)
	}
	return r.answers.Upsert(ctx, req)
}

func (r *reservations) GetReservation(ctx context.Context, req *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
	if r.answers.Get == nil {
		return r.UnimplementedReservationsServer.GetReservation(ctx, req)
	}
	return r.answers.Get(ctx, req)
}

func (r *reservations) ListPending(ctx context.Context, req *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer, error) {
	if r.answers.Pending == nil {
		return r.UnimplementedReservationsServer.ListPending(ctx, req)
	}
	return r.answers.Pending(ctx, req)
}

type usage struct {
	berthv1.UnimplementedUsageServer
	answers Answers
}

func (u *usage) GetUsage(ctx context.Context, req *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error) {
	if u.answers.Usage == nil {
		return u.UnimplementedUsageServer.GetUsage(ctx, req)
	}
	return u.answers.Usage(ctx, req)
}

type catalog struct {
	berthv1.UnimplementedCatalogServer
	answers Answers
}

func (c *catalog) ListSkus(ctx context.Context, req *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error) {
	if c.answers.Skus == nil {
		return c.UnimplementedCatalogServer.ListSkus(ctx, req)
	}
	return c.answers.Skus(ctx, req)
}

type queue struct {
	controlv1.UnimplementedQueueServer
	answers Answers
}

func (q *queue) Standing(ctx context.Context, req *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
	if q.answers.Standing == nil {
		return q.UnimplementedQueueServer.Standing(ctx, req)
	}
	return q.answers.Standing(ctx, req)
}

func (q *queue) QueueFindings(ctx context.Context, req *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	if q.answers.Findings == nil {
		return q.UnimplementedQueueServer.QueueFindings(ctx, req)
	}
	return q.answers.Findings(ctx, req)
}

type inventory struct {
	controlv1.UnimplementedInventoryServer
	answers Answers
}

func (i *inventory) TryAllocateAndLease(ctx context.Context, req *controlv1.CycleRequest) (*controlv1.CycleAnswer, error) {
	if i.answers.Cycle == nil {
		return i.UnimplementedInventoryServer.TryAllocateAndLease(ctx, req)
	}
	return i.answers.Cycle(ctx, req)
}

type heartbeats struct {
	controlv1.UnimplementedHeartbeatsServer
	answers Answers
}

func (h *heartbeats) Relay(s grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error {
	if h.answers.Relay == nil {
		return h.UnimplementedHeartbeatsServer.Relay(s)
	}
	return h.answers.Relay(s)
}

type replicas struct {
	controlv1.UnimplementedReplicasServer
	answers Answers
}

func (r *replicas) GetReplica(ctx context.Context, req *controlv1.GetReplicaRequest) (*berthv1.Replica, error) {
	if r.answers.Replica == nil {
		return r.UnimplementedReplicasServer.GetReplica(ctx, req)
	}
	return r.answers.Replica, nil
}

func (r *replicas) Resign(ctx context.Context, req *controlv1.ResignRequest) (*controlv1.ResignAnswer, error) {
	if r.answers.Resign == nil {
		return r.UnimplementedReplicasServer.Resign(ctx, req)
	}
	return &controlv1.ResignAnswer{}, r.answers.Resign(req.GetTerm())
}
