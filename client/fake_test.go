package client

import (
	"context"
	"fmt"
	"net"
	"path"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is a gateway whose answers are set by the test.
type gateway struct {
	berthv1.UnimplementedReservationsServer
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedExecutorsServer
	berthv1.UnimplementedCatalogServer
	berthv1.UnimplementedUsageServer
	berthv1.UnimplementedFindingsServer
	berthv1.UnimplementedAssignmentsServer
	berthv1.UnimplementedLeadersServer
	berthv1.UnimplementedEventsServer
	berthv1.UnimplementedTenantsServer
	berthv1.UnimplementedCallersServer
	berthv1.UnimplementedAuditLogServer
	berthv1.UnimplementedOutputsServer
	berthv1.UnimplementedVolumesServer

	address string
	more    []grpc.ServerOption
	server  *rpc.Server
	served  chan struct{}

	upsert   func(*berthv1.UpsertReservationRequest) (*berthv1.Reservation, error)
	cancel   func(*berthv1.CancelReservationRequest) (*berthv1.CancelAnswer, error)
	get      func(*berthv1.GetReservationRequest) (*berthv1.Reservation, error)
	list     func(*berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error)
	assigned func(*berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error)
	watch    func(*berthv1.WatchEventsRequest, grpc.ServerStreamingServer[berthv1.Event]) error
	// If any is set, it answers every unary call.
	any func(method string, request proto.Message) (proto.Message, error)
}

func (g *gateway) UpsertReservation(_ context.Context, q *berthv1.UpsertReservationRequest) (*berthv1.Reservation,
	error) {
	return g.upsert(q)
}

func (g *gateway) CancelReservation(_ context.Context, q *berthv1.CancelReservationRequest) (*berthv1.CancelAnswer,
	error) {
	return g.cancel(q)
}

func (g *gateway) GetReservation(_ context.Context, q *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
	return g.get(q)
}

func (g *gateway) ListReservations(_ context.Context,
	q *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	if g.list == nil {
		return &berthv1.ListReservationsAnswer{}, nil
	}
	return g.list(q)
}

func (g *gateway) ListAssignments(_ context.Context,
	q *berthv1.ListAssignmentsRequest) (*berthv1.ListAssignmentsAnswer, error) {
	return g.assigned(q)
}

func (g *gateway) WatchEvents(q *berthv1.WatchEventsRequest, stream grpc.ServerStreamingServer[berthv1.Event]) error {
	return g.watch(q, stream)
}

// serve starts the gateway at the address.
func (g *gateway) serve(t testing.TB, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	g.address = listener.Addr().String()
	g.server = rpc.NewServer(rpc.ServerOptions{More: append(g.more, grpc.ChainUnaryInterceptor(g.intercept))})
	berthv1.RegisterReservationsServer(g.server, g)
	berthv1.RegisterExplanationsServer(g.server, g)
	berthv1.RegisterExecutorsServer(g.server, g)
	berthv1.RegisterCatalogServer(g.server, g)
	berthv1.RegisterUsageServer(g.server, g)
	berthv1.RegisterFindingsServer(g.server, g)
	berthv1.RegisterAssignmentsServer(g.server, g)
	berthv1.RegisterLeadersServer(g.server, g)
	berthv1.RegisterEventsServer(g.server, g)
	berthv1.RegisterTenantsServer(g.server, g)
	berthv1.RegisterOutputsServer(g.server, g)
	berthv1.RegisterVolumesServer(g.server, g)
	berthv1.RegisterCallersServer(g.server, g)
	berthv1.RegisterAuditLogServer(g.server, g)
	g.served = make(chan struct{})
	go func() {
		defer close(g.served)
		g.server.Serve(listener)
	}()
	t.Cleanup(g.stop)
}

func (g *gateway) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if _, health := request.(*healthpb.HealthCheckRequest); health || g.any == nil {
		return handler(ctx, request)
	}
	return g.any(path.Base(info.FullMethod), request.(proto.Message))
}

func (g *gateway) stop() {
	g.server.Stop()
	<-g.served
}

// dial returns a connected client whose pauses are very short. The client is connected
// before dial returns, because tests count or await only the later calls.
func dial(t testing.TB, opts []Option, gateways ...*gateway) *Client {
	t.Helper()
	var addresses []string
	for _, g := range gateways {
		addresses = append(addresses, g.address)
	}
	var conn *grpc.ClientConn
	first := func(ctx context.Context, method string, q, a any, of *grpc.ClientConn, call grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		if conn == nil {
			conn = of // the first call is not sent and only provides the connection
			return nil
		}
		return call(ctx, method, q, a, of, opts...)
	}
	c, err := Dial(addresses, append([]Option{WithDialOptions(grpc.WithChainUnaryInterceptor(first))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	c.backoff = backoff{first: time.Millisecond, most: 5 * time.Millisecond}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.reservations.GetReservation(ctx, &berthv1.GetReservationRequest{}); err != nil {
		t.Fatal(err)
	}
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("the client is %v", state)
		}
	}
	return c
}

// log is a stream of events to which tests add events.
type log struct {
	mu      sync.Mutex
	events  []*berthv1.Event
	changed chan struct{}
}

func newLog() *log { return &log{changed: make(chan struct{})} }

// add adds an event. Its cursor is its number, starting at 1.
func (l *log) add() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, &berthv1.Event{Cursor: fmt.Sprint(len(l.events) + 1)})
	close(l.changed)
	l.changed = make(chan struct{})
}

// follow sends the events after the cursor and waits for more. When it has sent the given
// maximum of events, it returns end.
func (l *log) follow(since string, stream grpc.ServerStreamingServer[berthv1.Event], most int, end error) error {
	next := 0
	fmt.Sscan(since, &next) //nolint:errcheck // empty at first
	for sent := 0; ; {
		l.mu.Lock()
		fresh, changed := l.events[next:], l.changed
		next = len(l.events)
		l.mu.Unlock()
		for _, e := range fresh {
			if sent == most {
				return end
			}
			if err := stream.Send(proto.CloneOf(e)); err != nil {
				return err
			}
			sent++
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func unavailable() error { return fault.New(fault.Unavailable, fault.ReasonUnavailable, "no leader") }
