package client_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/client"
)

// startGateway starts a gateway that grants every request, and returns a client of it.
func startGateway() (c *client.Client, stop func()) {
	address, stopServer := serveGateway(0)
	c, err := client.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	return c, func() { c.Close(); stopServer() }
}

// serveGateway starts a gateway that grants every request. It refuses only the given number
// of first cancels as unavailable.
func serveGateway(refusals int, opts ...grpc.ServerOption) (address string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return serveGranting(listener, &grantingGateway{refusals: refusals, changed: make(chan struct{})}, opts...)
}

func serveGranting(listener net.Listener, g *grantingGateway, opts ...grpc.ServerOption) (address string, stop func()) {
	server := grpc.NewServer(opts...)
	berthv1.RegisterReservationsServer(server, g)
	berthv1.RegisterAssignmentsServer(server, g)
	berthv1.RegisterEventsServer(server, g)
	registerCluster(server)
	go server.Serve(listener)
	return listener.Addr().String(), server.Stop
}

// startReplacingGateway is like startGateway. It also returns a function that replaces a
// worker.
func startReplacingGateway() (c *client.Client, replace, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	g := &grantingGateway{changed: make(chan struct{})}
	address, stopServer := serveGranting(listener, g)
	if c, err = client.Dial([]string{address}); err != nil {
		log.Fatal(err)
	}
	return c, g.replace, func() { c.Close(); stopServer() }
}

// serveTLSGateway is like serveGateway, but with TLS. The returned authorities include the
// one that signed the certificate of the gateway.
func serveTLSGateway(opts ...grpc.ServerOption) (address string, authorities *x509.CertPool, stop func()) {
	generated := httptest.NewTLSServer(nil)
	defer generated.Close()
	authorities = x509.NewCertPool()
	authorities.AddCert(generated.Certificate())
	address, stop = serveGateway(0,
		append(opts, grpc.Creds(credentials.NewServerTLSFromCert(&generated.TLS.Certificates[0])))...)
	return address, authorities, stop
}

// printUserAgent prints the user agent of each call, without the version of gRPC.
func printUserAgent(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	received, _ := metadata.FromIncomingContext(ctx)
	program, _, _ := strings.Cut(received["user-agent"][0], " ")
	fmt.Println("called by", program)
	return handler(ctx, request)
}

// printAuthorization prints the proof of the caller.
func printAuthorization(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	received, _ := metadata.FromIncomingContext(ctx)
	fmt.Println("called with", received["authorization"][0])
	return handler(ctx, request)
}

// grantingGateway runs every worker, but it loses the first worker of index 1. Its lists
// have the revision of the last request.
type grantingGateway struct {
	berthv1.UnimplementedReservationsServer
	berthv1.UnimplementedAssignmentsServer
	berthv1.UnimplementedEventsServer

	mu           sync.Mutex
	refusals     int
	reservations []*berthv1.Reservation
	events       []*berthv1.Event // event i has revision i+1
	changed      chan struct{}
}

func (g *grantingGateway) UpsertReservation(_ context.Context,
	q *berthv1.UpsertReservationRequest) (*berthv1.Reservation,
	error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := proto.CloneOf(q.GetReservation())
	if r.Name == "" {
		r.Name = "main"
	}
	for index := range r.GetCount() {
		r.Workers = append(r.Workers, &berthv1.WorkerID{Index: index, Number: 1})
	}
	for _, asked := range g.reservations {
		if asked.GetStage() == r.GetStage() && asked.GetName() == r.GetName() {
			r = proto.CloneOf(asked)
			r.Change = berthv1.UpsertReservationRequest_UNCHANGED.Enum()
			return r, nil
		}
	}
	r.Uid, r.State = fmt.Sprintf("1-%d", len(g.reservations)+1), berthv1.Reservation_QUEUED
	g.emit(r, berthv1.Event_RESERVATION_QUEUED, berthv1.Assignment_STATE_UNSPECIFIED, r.GetWorkers()...)
	r.Epoch = int64(len(g.events))
	g.reservations = append(g.reservations, r)
	g.emit(r, berthv1.Event_RESERVATION_ASSIGNED, berthv1.Assignment_STATE_UNSPECIFIED, r.GetWorkers()...)
	g.emit(r, berthv1.Event_WORKER_RUNNING, berthv1.Assignment_RUNNING, r.GetWorkers()...)
	for _, workerID := range r.GetWorkers() {
		if workerID.GetIndex() == 1 && workerID.GetNumber() == 1 {
			g.emit(r, berthv1.Event_WORKER_LOST, berthv1.Assignment_LOST, workerID)
		}
	}
	r = proto.CloneOf(r)
	r.Change = berthv1.UpsertReservationRequest_CREATED.Enum()
	return r, nil
}

// emit adds an event about the given workers of a reservation.
func (g *grantingGateway) emit(r *berthv1.Reservation, kind berthv1.Event_Kind, state berthv1.Assignment_State,
	workers ...*berthv1.WorkerID) {
	revision := int64(len(g.events) + 1)
	event := &berthv1.Event{
		Cursor: fmt.Sprint(revision), Revision: revision, Kind: kind, Count: int32(len(workers)),
		Job: r.GetJob(), Stage: r.GetStage(), Reservation: r.GetName(), Uid: r.GetUid(),
	}
	for _, workerID := range workers {
		event.Workers = append(event.Workers, &berthv1.EventWorker{Index: workerID.GetIndex(), Number: workerID.GetNumber(),
			State: &state})
	}
	g.events = append(g.events, event)
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *grantingGateway) BindReservation(_ context.Context,
	q *berthv1.BindReservationRequest) (*berthv1.Reservation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.reservations {
		if r.GetStage() == q.GetStage() && r.GetHold() == berthv1.Hold_HOLD {
			r.Task, r.Hold = q.GetTask(), nil
			r = proto.CloneOf(r)
			r.Change = berthv1.UpsertReservationRequest_BOUND.Enum()
			return r, nil
		}
	}
	return nil, rpc.ToStatus(fault.New(fault.Conflict, fault.ReasonNotHeld, "only a HELD reservation can be bound"))
}

func (g *grantingGateway) CancelReservation(_ context.Context,
	q *berthv1.CancelReservationRequest) (*berthv1.CancelAnswer,
	error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusals > 0 {
		g.refusals--
		return nil, status.Error(codes.Unavailable, "the registry has no leader")
	}
	answer := &berthv1.CancelAnswer{}
	for _, r := range g.reservations {
		if q.GetIfEpoch() != 0 && q.GetIfEpoch() != r.GetEpoch() {
			return nil, rpc.ToStatus(fault.New(fault.Conflict, fault.ReasonEpochMismatch, "the epoch is %d", r.GetEpoch()))
		}
		if r.GetStage() == q.GetStage() && r.GetName() == q.GetName() && r.GetState() != berthv1.Reservation_CANCELLED {
			r.State = berthv1.Reservation_CANCELLED
			answer.Cancelled++
		}
	}
	return answer, nil
}

func (g *grantingGateway) GetReservation(_ context.Context, q *berthv1.GetReservationRequest) (*berthv1.Reservation,
	error) {
	return &berthv1.Reservation{Job: q.GetJob(), Stage: q.GetStage(), Name: q.GetName(),
		State: berthv1.Reservation_ACTIVE, Count: 1, WorkerCounts: map[string]int32{"RUNNING": 1}}, nil
}

func (g *grantingGateway) ListReservations(context.Context,
	*berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &berthv1.ListReservationsAnswer{}
	for _, r := range g.reservations {
		answer.Reservations = append(answer.Reservations, proto.CloneOf(r))
		answer.Revision = r.GetEpoch()
	}
	answer.Cursor = fmt.Sprint(answer.GetRevision())
	return answer, nil
}

func (g *grantingGateway) ListJobs(context.Context, *berthv1.ListJobsRequest) (*berthv1.ListJobsAnswer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &berthv1.ListJobsAnswer{}
	for _, r := range g.reservations {
		answer.Jobs = append(answer.Jobs, &berthv1.Job{Name: r.GetJob(), Reservations: 1, RunningWorkers: r.GetCount()})
	}
	return answer, nil
}

func (g *grantingGateway) CancelJob(context.Context, *berthv1.CancelJobRequest) (*berthv1.CancelAnswer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &berthv1.CancelAnswer{Cancelled: int32(len(g.reservations))}
	g.reservations = nil
	return answer, nil
}

func (g *grantingGateway) CancelWorkers(_ context.Context,
	q *berthv1.CancelWorkersRequest) (*berthv1.CancelWorkersAnswer, error) {
	return &berthv1.CancelWorkersAnswer{Cancelled: int32(len(q.GetWorkers()))}, nil
}

func (g *grantingGateway) ListPending(context.Context, *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer,
	error) {
	return &berthv1.ListPendingAnswer{Ready: true, Groups: []*berthv1.PendingGroup{{
		Id: "e8c5f666f96605a3", Reservations: 1, Workers: 12, Message: "12 needed, 8 fit now",
		Head: &berthv1.ReservationKey{Job: "etl", Stage: "map", Name: "main"},
	}}, TotalGroups: 1, TotalReservations: 1, TotalWorkers: 12}, nil
}

func (g *grantingGateway) GetPendingHistory(context.Context,
	*berthv1.GetPendingHistoryRequest) (*berthv1.GetPendingHistoryAnswer, error) {
	begin := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	return &berthv1.GetPendingHistoryAnswer{Interval: durationpb.New(15 * time.Second), Points: []*berthv1.PendingPoint{
		{Time: timestamppb.New(begin)},
		{Time: timestamppb.New(begin.Add(15 * time.Second)), Groups: 1, Reservations: 1, Workers: 12},
	}}, nil
}

func (g *grantingGateway) FlushReservations(context.Context,
	*berthv1.FlushReservationsRequest) (*berthv1.CancelAnswer, error) {
	return &berthv1.CancelAnswer{Cancelled: 1}, nil
}

func (g *grantingGateway) MarkReady(context.Context, *berthv1.MarkReadyRequest) (*berthv1.MarkReadyAnswer, error) {
	return &berthv1.MarkReadyAnswer{ReadySince: timestamppb.New(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC))}, nil
}

// ListMembers lists the workers of the reservations of a stage, one in a page.
func (g *grantingGateway) ListMembers(_ context.Context, q *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer,
	error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &berthv1.ListMembersAnswer{Revision: int64(len(g.events))}
	for _, r := range g.reservations {
		if r.GetJob() != q.GetJob() || r.GetStage() != q.GetStage() || r.GetName() != q.GetName() {
			continue
		}
		answer.Workers = r.GetCount()
		for _, w := range r.GetWorkers() {
			answer.Members = append(answer.Members, &berthv1.Member{Index: w.GetIndex(), Number: w.GetNumber(),
				Executor: fmt.Sprintf("host-%d", w.GetIndex()), Host: fmt.Sprintf("10.0.0.%d", w.GetIndex())})
		}
	}
	answer.Cursor = fmt.Sprint(answer.GetMembers())
	var err error
	answer.Members, answer.NextPageToken, err = page(answer.Members, q.GetPageToken(), 1)
	return answer, err
}

// SetMembers knows members once it has got them.
func (*grantingGateway) SetMembers(_ context.Context, q *berthv1.SetMembersRequest) (*berthv1.SetMembersAnswer, error) {
	return &berthv1.SetMembersAnswer{Known: q.GetWorkers() > 0}, nil
}

// replace replaces the first worker of the first reservation.
func (g *grantingGateway) replace() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reservations[0].Workers[0].Number++
}

// ListAssignments lists the workers of all reservations, one in a page.
func (g *grantingGateway) ListAssignments(_ context.Context,
	q *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer,
	error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	revision := int64(len(g.events))
	answer := &berthv1.ListAssignmentsAnswer{Revision: revision, Cursor: fmt.Sprint(revision)}
	for _, r := range g.reservations {
		for _, w := range r.GetWorkers() {
			answer.Assignments = append(answer.Assignments, &berthv1.Assignment{
				Job: r.GetJob(), Stage: r.GetStage(), Reservation: r.GetName(), Uid: r.GetUid(), Epoch: r.GetEpoch(),
				Index: w.GetIndex(), Number: w.GetNumber(), Executor: fmt.Sprintf("host-%d", w.GetIndex()),
				State: berthv1.Assignment_RUNNING,
			})
		}
	}
	var err error
	answer.Assignments, answer.NextPageToken, err = page(answer.Assignments, q.GetPageToken(), q.GetPageSize())
	return answer, err
}

// SignalWorkers takes the executor of worker 1 for one that is not connected.
func (g *grantingGateway) SignalWorkers(context.Context,
	*berthv1.SignalWorkersRequest) (*berthv1.SignalWorkersAnswer, error) {
	return &berthv1.SignalWorkersAnswer{Signalled: 1, FailedCount: 1, Failed: []*berthv1.UnsignalledWorker{{
		Worker: &berthv1.WorkerID{Index: 1, Number: 1}, Executor: "host-1", Reason: string(fault.ReasonExecutorUnreachable),
		Message: "the executor host-1 is not connected",
	}}}, nil
}

func (g *grantingGateway) ClearQuarantine(_ context.Context,
	q *berthv1.ClearQuarantineRequest) (*berthv1.ClearQuarantineAnswer, error) {
	return &berthv1.ClearQuarantineAnswer{Cleared: int32(len(q.GetWorkers()))}, nil
}

func (g *grantingGateway) WatchEvents(q *berthv1.WatchEventsRequest,
	stream grpc.ServerStreamingServer[berthv1.Event]) error {
	if err := stream.SendHeader(rpc.StoredHeader(q.GetStored())); err != nil {
		return err
	}
	next := 0
	fmt.Sscan(q.GetSince(), &next) //nolint:errcheck // empty at first
	for {
		g.mu.Lock()
		fresh, changed := g.events[next:], g.changed
		next = len(g.events)
		g.mu.Unlock()
		for _, event := range fresh {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
		if q.GetStored() {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
