// Package replicatest gives a test complete control over what a replica answers: it starts a
// replica of any service on a real socket, and the test sets its answers and its health. The
// replica stops with the test.
package replicatest

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/testkit/porttest"
)

// Answers are the answers of a replica by method. If a function is nil, the replica does not
// know the method.
type Answers struct {
	Upsert   func(context.Context, *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error)
	Get      func(context.Context, *berthv1.GetReservationRequest) (*berthv1.Reservation, error)
	Pending  func(context.Context, *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer, error)
	Usage    func(context.Context, *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error)
	Skus     func(context.Context, *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error)
	Standing func(context.Context, *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error)
	Findings func(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error)
	Cycle    func(context.Context, *controlv1.CycleRequest) (*controlv1.CycleAnswer, error)
	Members  func(context.Context, *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer, error)
	Relay    func(grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error
	Replica  *berthv1.Replica
	Resign   func(term int64) error
}

// Replica is a running replica.
type Replica struct {
	*rpc.Server
	Address string
}

// Start starts a replica on an address. If address is empty, Start uses a free port. The
// replica stops when the test ends.
func Start(t testing.TB, address string, answers Answers) *Replica {
	t.Helper()
	if address == "" {
		address = porttest.Hold(t)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &Replica{rpc.NewServer(rpc.ServerOptions{More: []grpc.ServerOption{grpc.UnknownServiceHandler(answers.handle)}}),
		l.Addr().String()}
	var served sync.WaitGroup
	served.Go(func() { r.Serve(l) }) //nolint:errcheck // the end of the test
	t.Cleanup(func() {
		r.Stop()
		served.Wait()
	})
	return r
}

// handle answers a call of any method.
func (a Answers) handle(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	switch method {
	case berthv1.Reservations_UpsertReservation_FullMethodName:
		return unary(s, a.Upsert)
	case berthv1.Reservations_GetReservation_FullMethodName:
		return unary(s, a.Get)
	case berthv1.Reservations_ListPending_FullMethodName:
		return unary(s, a.Pending)
	case berthv1.Usage_GetUsage_FullMethodName:
		return unary(s, a.Usage)
	case berthv1.Catalog_ListSkus_FullMethodName:
		return unary(s, a.Skus)
	case berthv1.Assignments_ListMembers_FullMethodName:
		return unary(s, a.Members)
	case controlv1.Queue_Standing_FullMethodName:
		return unary(s, a.Standing)
	case controlv1.Queue_QueueFindings_FullMethodName:
		return unary(s, a.Findings)
	case controlv1.Inventory_TryAllocateAndLease_FullMethodName:
		return unary(s, a.Cycle)
	case controlv1.Replicas_GetReplica_FullMethodName:
		if a.Replica != nil {
			return unary(s, func(context.Context, *controlv1.GetReplicaRequest) (*berthv1.Replica, error) {
				return a.Replica,
					nil
			})
		}
	case controlv1.Replicas_Resign_FullMethodName:
		if a.Resign != nil {
			return unary(s, func(_ context.Context, req *controlv1.ResignRequest) (*controlv1.ResignAnswer, error) {
				return &controlv1.ResignAnswer{}, a.Resign(req.GetTerm())
			})
		}
	case controlv1.Heartbeats_Relay_FullMethodName:
		if a.Relay != nil {
			return a.Relay(&grpc.GenericServerStream[controlv1.RelayRequest, controlv1.RelayAnswer]{ServerStream: s})
		}
	}
	return unary[struct{}, struct{}](s, nil)
}

// unary answers a unary call. If answer is nil, the replica does not know the method.
func unary[Q, A any](s grpc.ServerStream, answer func(context.Context, *Q) (*A, error)) error {
	if answer == nil {
		return status.Error(codes.Unimplemented, "unknown method")
	}
	request := new(Q)
	if err := s.RecvMsg(request); err != nil {
		return err
	}
	a, err := answer(s.Context(), request)
	if err != nil {
		return err
	}
	return s.SendMsg(a)
}

// Lead sets whether the replica reports that it leads a service.
func (r *Replica) Lead(service string, leads bool) { r.SetServing(rpc.LeaderHealth(service), leads) }

// NotLeader returns the error of a replica that does not lead.
func NotLeader() error {
	return fault.New(fault.Precondition, fault.ReasonNotLeader, "another replica leads")
}
