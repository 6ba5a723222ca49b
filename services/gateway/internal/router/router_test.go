package router_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/gateway/internal/leaders"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/services/gateway/internal/router"
	"berth.dev/testkit/porttest"
)

// gatewayConn is a router behind a gRPC server, with a client connection to that server.
type gatewayConn struct {
	*router.Router
	conn *grpc.ClientConn
}

// open starts a router to replicas of the registry and of executor-state.
func open(t *testing.T, deadline time.Duration, registry, executors []string) *gatewayConn {
	t.Helper()
	nowhere := []string{porttest.Hold(t)}
	if executors == nil {
		executors = nowhere
	}
	replicas := map[string][]string{
		model.ServiceRegistry: registry, model.ServiceExecutorState: executors, model.ServiceAssigner: nowhere,
	}
	l, err := leaders.New(replicas, nil)
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for l.Poll(life); store.Sleep(life, 100*time.Millisecond) == nil; l.Poll(life) {
		}
	})
	t.Cleanup(func() { end(); running.Wait(); l.Close() })
	r, err := router.New(router.Options{Deadline: deadline, Replicas: replicas, Reach: l.Reach})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return &gatewayConn{r, serve(t, r.Forward)}
}

// serve starts a gRPC server with a handler for all methods, and returns a client connection to it.
func serve(t *testing.T, handler grpc.StreamHandler) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.ServerOptions{More: []grpc.ServerOption{grpc.UnknownServiceHandler(handler)}})
	var served sync.WaitGroup
	served.Go(func() { server.Serve(l) })
	conn, err := rpc.Dial([]string{l.Addr().String()}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		served.Wait()
	})
	return conn
}

func (d *gatewayConn) reservations() berthv1.ReservationsClient {
	return berthv1.NewReservationsClient(d.conn)
}

func answering(uid string) replicatest.Answers {
	return replicatest.Answers{Upsert: func(context.Context, *berthv1.UpsertReservationRequest) (*berthv1.Reservation,
		error) {
		return &berthv1.Reservation{Uid: uid}, nil
	}}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestACallGoesToTheLeader(t *testing.T) {
	a, b := replicatest.Start(t, "", answering("a")), replicatest.Start(t, "", answering("b"))
	d := open(t, time.Minute, []string{a.Address, b.Address}, nil)
	a.Lead(model.ServiceRegistry, true)
	if got, err := d.reservations().UpsertReservation(within(t, 10*time.Second),
		&berthv1.UpsertReservationRequest{}); err != nil || got.GetUid() != "a" {
		t.Fatalf("got %v, %v", got, err)
	}

	// The leader fails, and a call arrives before another replica leads.
	a.Stop()
	answered := make(chan error, 1)
	go func() {
		got, err := d.reservations().UpsertReservation(within(t, 10*time.Second), &berthv1.UpsertReservationRequest{})
		if err == nil && got.GetUid() != "b" {
			err = errors.New("answered by " + got.GetUid())
		}
		answered <- err
	}()
	b.Lead(model.ServiceRegistry, true)
	if err := <-answered; err != nil {
		t.Errorf("the caller saw the failover: %v", err)
	}
}

// A call that waits for a change ends when the gateway stops, and its caller may repeat it at
// another gateway.
func TestACallThatWaitsEndsWithTheGateway(t *testing.T) {
	waits := make(chan struct{})
	a := replicatest.Start(t, "", replicatest.Answers{Members: func(ctx context.Context,
		_ *berthv1.ListMembersRequest) (*berthv1.ListMembersAnswer, error) {
		close(waits)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	a.Lead(model.ServiceAssigner, true)
	life, stop := context.WithCancel(t.Context())
	nowhere := []string{porttest.Hold(t)}
	r, err := router.New(router.Options{Deadline: time.Minute, Life: life, Replicas: map[string][]string{
		model.ServiceRegistry: nowhere, model.ServiceExecutorState: nowhere, model.ServiceAssigner: {a.Address},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := berthv1.NewAssignmentsClient(r).ListMembers(t.Context(), &berthv1.ListMembersRequest{})
		ended <- err
	}()
	<-waits
	stop()
	if err := <-ended; !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("the call ended with %v", err)
	}
}

// The router sends the calls of each service only to the leader of that service.
func TestEveryServiceHasItsLeader(t *testing.T) {
	registry := replicatest.Start(t, "", replicatest.Answers{
		Standing: func(context.Context, *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
			return &berthv1.Explanation{Group: "of the registry"}, nil
		},
	})
	executors := replicatest.Start(t, "", replicatest.Answers{
		Usage: func(context.Context, *berthv1.GetUsageRequest) (*berthv1.GetUsageAnswer, error) {
			return nil, fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "not yet")
		},
		Skus: func(context.Context, *berthv1.ListSkusRequest) (*berthv1.ListSkusAnswer, error) {
			return &berthv1.ListSkusAnswer{Skus: []*berthv1.Sku{{Name: "small"}}}, nil
		},
	})
	registry.Lead(model.ServiceRegistry, true)
	executors.Lead(model.ServiceExecutorState, true)
	d := open(t, time.Minute, []string{registry.Address}, []string{executors.Address})
	ctx := within(t, 10*time.Second)
	if got, err := controlv1.NewQueueClient(d.conn).Standing(ctx, &berthv1.ExplainReservationRequest{}); err != nil ||
		got.GetGroup() == "" {
		t.Errorf("standing: %v, %v", got, err)
	}
	if got, err := berthv1.NewCatalogClient(d.conn).ListSkus(ctx, &berthv1.ListSkusRequest{}); err != nil ||
		len(got.GetSkus()) != 1 {
		t.Errorf("SKUs: %v, %v", got, err)
	}
	if _, err := berthv1.NewUsageClient(d.conn).GetUsage(ctx,
		&berthv1.GetUsageRequest{}); rpc.FromStatus(err).Reason != fault.ReasonRegistryNotReady {
		t.Errorf("usage: %v", err)
	}
}

// early reports whether a call ended before it, or the router's own calls, had an answer.
func early(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded ||
		strings.HasSuffix(status.Convert(err).Message(), "has answered yet")
}

// The error names the addresses that do not answer. It says that there is no leader only if a
// replica says so.
func TestAMissingLeaderIsReportedBeforeTheDeadline(t *testing.T) {
	a := replicatest.Start(t, "", replicatest.Answers{Replica: &berthv1.Replica{Role: berthv1.Replica_STANDBY}})
	nobody := porttest.Hold(t)
	for _, c := range []struct {
		name          string
		routers, call time.Duration
		registry      []string
		want          string
	}{
		{"the caller's deadline", time.Minute, time.Second, []string{a.Address}, "registry has no leader"},
		{"the gateway's", 100 * time.Millisecond, 0, []string{a.Address}, "registry has no leader"},
		{"a wrong address", time.Minute, time.Second, []string{nobody},
			"no replica of registry answers: " + nobody + " (connection refused)"},
		{"one wrong address", time.Minute, time.Second, []string{nobody, a.Address},
			"registry has no leader; no answer from " + nobody + " (connection refused)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, c.routers, c.registry, nil)
			// The router subtracts 200 ms from the deadline to have time for the answer. The machine
			// may be busy for that long, so the test retries a few times.
			for tries := 9; ; tries-- {
				ctx := t.Context()
				if c.call > 0 {
					ctx = within(t, c.call)
				}
				_, err := d.reservations().UpsertReservation(ctx, &berthv1.UpsertReservationRequest{})
				f := rpc.FromStatus(err)
				if status.Code(err) == codes.Unavailable && f.Message == c.want && f.Meta["service"] == "registry" {
					return
				}
				if !early(err) || tries == 1 {
					t.Fatalf("got %v", err)
				}
			}
		})
	}
}

// If the deadline is too short to wait, the router has no time to find a leader. The error
// therefore names the deadline and not a missing leader.
func TestAShortDeadlineIsNotAMissingLeader(t *testing.T) {
	leader, standby := replicatest.Start(t, "", answering("a")), replicatest.Start(t, "", answering("b"))
	leader.Lead(model.ServiceRegistry, true)
	for name, registry := range map[string]string{"a leader": leader.Address, "no leader": standby.Address} {
		d := open(t, time.Minute, []string{registry}, nil)
		err := d.Invoke(within(t, time.Nanosecond), berthv1.Reservations_UpsertReservation_FullMethodName,
			&berthv1.UpsertReservationRequest{}, &berthv1.Reservation{})
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(status.Convert(err).Message(),
			"give it more time") {
			t.Errorf("with %s: %v", name, err)
		}
	}
}

func TestErrorsAndRetries(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		calls int32
		code  codes.Code
	}{
		{"not the leader", replicatest.NotLeader(), 3, codes.OK},
		{"connection broke", status.Error(codes.Unavailable, "connection reset"), 3, codes.OK},
		{"perhaps applied", fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd is slow"), 3, codes.OK},
		{"not ready is an answer", fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "wait"), 1, codes.Unavailable},
		{"bad request", fault.BadField(fault.ReasonBadName, "job", "bad"), 1, codes.InvalidArgument},
		{"other precondition", fault.New(fault.Precondition, fault.ReasonNotAllowed, "no"), 1, codes.FailedPrecondition},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			a := replicatest.Start(t, "", replicatest.Answers{Upsert: func(context.Context,
				*berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
				if calls.Add(1) < 3 {
					return nil, c.err
				}
				return &berthv1.Reservation{}, nil
			}})
			a.Lead(model.ServiceRegistry, true)
			d := open(t, time.Minute, []string{a.Address}, nil)
			_, err := d.reservations().UpsertReservation(within(t, 10*time.Second), &berthv1.UpsertReservationRequest{})
			if status.Code(err) != c.code || calls.Load() != c.calls {
				t.Errorf("%d calls, %v", calls.Load(), err)
			}
			if err != nil && rpc.FromStatus(err).Reason != fault.Of(c.err).Reason {
				t.Errorf("the reason changed: %v", err)
			}
		})
	}
}

// If a replica keeps answering NOT_LEADER, the router retries the call until its deadline.
func TestRetriesEndWithTheDeadline(t *testing.T) {
	var calls atomic.Int32
	a := replicatest.Start(t, "", replicatest.Answers{
		Replica: &berthv1.Replica{Role: berthv1.Replica_STANDBY},
		Upsert: func(context.Context, *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
			calls.Add(1)
			return nil, replicatest.NotLeader()
		},
	})
	a.Lead(model.ServiceRegistry, true)
	// If the deadline passes before or during the third attempt, the result proves nothing.
	// The test then repeats with a longer deadline.
	for deadline := 300 * time.Millisecond; ; deadline *= 2 {
		calls.Store(0)
		d := open(t, deadline, []string{a.Address}, nil)
		_, err := d.reservations().UpsertReservation(t.Context(), &berthv1.UpsertReservationRequest{})
		f, n := rpc.FromStatus(err), calls.Load()
		// The pauses grow: 2, 4, 8 … 128, 250 ms.
		if most := 12 + int32(deadline/(250*time.Millisecond)); n > most {
			t.Fatalf("%d calls within %v", n, deadline)
		}
		noLeader := f.Kind == fault.Unavailable && f.Message == "registry has no leader"
		if noLeader && n >= 3 {
			return
		}
		if !noLeader && !early(err) || deadline > 5*time.Second {
			t.Fatalf("%d calls within %v, got %v", n, deadline, err)
		}
	}
}

// The registry remembers request IDs for a limited time. A copy of a call must therefore
// not arrive much later than the call.
func TestACallEndsBeforeItsRequestIDExpires(t *testing.T) {
	left := make(chan time.Duration, 1)
	a := replicatest.Start(t, "", replicatest.Answers{Upsert: func(ctx context.Context,
		_ *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return &berthv1.Reservation{}, nil
	}})
	a.Lead(model.ServiceRegistry, true)
	for _, deadline := range []time.Duration{time.Minute, 24 * time.Hour} {
		d := open(t, deadline, []string{a.Address}, nil)
		for _, ctx := range []context.Context{t.Context(), within(t, 24*time.Hour)} {
			if _, err := d.reservations().UpsertReservation(ctx, &berthv1.UpsertReservationRequest{}); err != nil {
				t.Fatal(err)
			}
			if got := <-left; got > model.KeepTerminal/2 {
				t.Errorf("a gateway with deadline %v: a call may take %v", deadline, got)
			}
		}
	}
}

func TestMetadataAndTrailersPass(t *testing.T) {
	a := replicatest.Start(t, "", replicatest.Answers{Upsert: func(ctx context.Context,
		_ *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		heard := strings.Join(md.Get("x-said"), ",")
		grpc.SetHeader(ctx, metadata.Pairs("x-heard", heard))  //nolint:errcheck // checked below
		grpc.SetTrailer(ctx, metadata.Pairs("x-last", "word")) //nolint:errcheck // checked below
		return &berthv1.Reservation{}, nil
	}})
	a.Lead(model.ServiceRegistry, true)
	d := open(t, time.Minute, []string{a.Address}, nil)
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(within(t, 10*time.Second), "x-said", "hello")
	if _, err := d.reservations().UpsertReservation(ctx, &berthv1.UpsertReservationRequest{}, grpc.Header(&header),
		grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := header.Get("x-heard"); len(got) != 1 || got[0] != "hello" {
		t.Errorf("header %v", header)
	}
	if got := trailer.Get("x-last"); len(got) != 1 || got[0] != "word" {
		t.Errorf("trailer %v", trailer)
	}
}

// leavingStream is the stream of a call whose caller leaves when the answer has come.
type leavingStream struct {
	grpc.ServerStream
	leave func()
}

func (s leavingStream) SetTrailer(metadata.MD) {
	s.leave()
	<-s.Context().Done()
}

// A caller that leaves before it has the answer is no fault of the gateway, whose log must not
// report one.
func TestACallerThatLeavesIsNoInternalError(t *testing.T) {
	a := replicatest.Start(t, "", answering("a"))
	a.Lead(model.ServiceRegistry, true)
	d := open(t, time.Minute, []string{a.Address}, nil)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	conn := serve(t, func(srv any, in grpc.ServerStream) error {
		err := d.Forward(srv, leavingStream{in, leave})
		ended <- err
		return err
	})
	_, err := berthv1.NewReservationsClient(conn).UpsertReservation(ctx, &berthv1.UpsertReservationRequest{})
	if status.Code(err) != codes.Canceled {
		t.Errorf("the caller got %v", err)
	}
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the call ended with %v", err)
	}
}

// The client and the service may know fields of a message that the gateway does not know.
// The gateway passes these fields on.
func TestUnknownFieldsPass(t *testing.T) {
	got := make(chan []byte, 1)
	a := replicatest.Start(t, "", replicatest.Answers{Upsert: func(_ context.Context,
		req *berthv1.UpsertReservationRequest) (*berthv1.Reservation, error) {
		got <- req.ProtoReflect().GetUnknown()
		return &berthv1.Reservation{}, nil
	}})
	a.Lead(model.ServiceRegistry, true)
	d := open(t, time.Minute, []string{a.Address}, nil)
	req := &berthv1.UpsertReservationRequest{}
	unknown := []byte{0xa0, 0x3f, 0x07} // field 1012, varint 7
	req.ProtoReflect().SetUnknown(unknown)
	if _, err := d.reservations().UpsertReservation(within(t, 10*time.Second), req); err != nil {
		t.Fatal(err)
	}
	if g := <-got; string(g) != string(unknown) {
		t.Errorf("received %x", g)
	}
}

func TestAPublicRequestIsBounded(t *testing.T) {
	a := replicatest.Start(t, "", answering("a"))
	a.Lead(model.ServiceRegistry, true)
	d := open(t, time.Minute, []string{a.Address}, nil)
	large := &berthv1.UpsertReservationRequest{RequestId: strings.Repeat("x", rpc.PublicMessageLimit+1)}
	_, err := d.reservations().UpsertReservation(within(t, 10*time.Second), large)
	if f := rpc.FromStatus(err); f.Kind != fault.Invalid || f.Reason != fault.ReasonTooLarge {
		t.Errorf("got %v", err)
	}
	large.RequestId = large.RequestId[:rpc.PublicMessageLimit-100]
	if _, err := d.reservations().UpsertReservation(within(t, 10*time.Second), large); err != nil {
		t.Errorf("a request within the limit: %v", err)
	}
}

// A scheduling cycle contains the heads of all queues, and its answer contains an outcome
// for each candidate. Both may be larger than public requests.
func TestACycleMayBeLarge(t *testing.T) {
	const bytes = 12 << 20
	a := replicatest.Start(t, "", replicatest.Answers{Cycle: func(_ context.Context,
		req *controlv1.CycleRequest) (*controlv1.CycleAnswer, error) {
		return &controlv1.CycleAnswer{Outcomes: []*controlv1.CandidateOutcome{{Message: req.GetTrace()}}}, nil
	}})
	a.Lead(model.ServiceExecutorState, true)
	d := open(t, time.Minute, []string{porttest.Hold(t)}, []string{a.Address})
	cycle := func(bytes int) (*controlv1.CycleAnswer, error) {
		return controlv1.NewInventoryClient(d.conn).TryAllocateAndLease(within(t, 20*time.Second),
			&controlv1.CycleRequest{Trace: strings.Repeat("x", bytes)})
	}
	answer, err := cycle(bytes)
	if err != nil || len(answer.GetOutcomes()[0].GetMessage()) != bytes {
		t.Errorf("a cycle of %d bytes: %v", bytes, err)
	}
	_, err = cycle(rpc.PeerMessageLimit)
	if f := rpc.FromStatus(err); f.Reason != fault.ReasonTooLarge {
		t.Errorf("one of %d bytes: %v", rpc.PeerMessageLimit, err)
	}
}

func TestUnknownMethodsAreUnimplemented(t *testing.T) {
	d := open(t, time.Minute, []string{porttest.Hold(t)}, nil)
	for _, method := range []string{"/berth.v1.Reservations/Guess", "/other.Service/Call",
		"/berth.control.v1.Executor/SubmitTask"} {
		err := d.conn.Invoke(within(t, 10*time.Second), method, &berthv1.ListLeadersRequest{}, &berthv1.ListLeadersAnswer{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := d.Invoke(t.Context(), "/other.Service/Call", nil, nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("from inside: %v", err)
	}
}

func TestACanceledCallIsNotRetried(t *testing.T) {
	a := replicatest.Start(t, "", answering("a"))
	d := open(t, time.Minute, []string{a.Address}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := d.Invoke(ctx, berthv1.Reservations_UpsertReservation_FullMethodName, &berthv1.UpsertReservationRequest{},
		&berthv1.Reservation{})
	if status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

func TestBadAddressesNameTheirService(t *testing.T) {
	_, err := router.New(router.Options{Replicas: map[string][]string{model.ServiceRegistry: {"nowhere"}}})
	if fault.Of(err).Kind != fault.Invalid || !strings.Contains(err.Error(), "registry") {
		t.Errorf("got %v", err)
	}
}
