package rpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// peer is a server whose handlers are set by the test.
type peer struct {
	controlv1.UnimplementedReplicasServer
	controlv1.UnimplementedHeartbeatsServer
	get    func(context.Context) (*berthv1.Replica, error)
	beat   func(grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error
	server *rpc.Server
	addr   string
}

func (p *peer) GetReplica(ctx context.Context, _ *controlv1.GetReplicaRequest) (*berthv1.Replica, error) {
	return p.get(ctx)
}

func (p *peer) Heartbeat(s grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
	return p.beat(s)
}

// serve starts a peer at an address. If the address is empty, serve chooses one.
func serve(t *testing.T, address string, o rpc.ServerOptions, p *peer) *peer {
	t.Helper()
	if address == "" {
		address = hold(t)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.server, p.addr = rpc.NewServer(o), l.Addr().String()
	controlv1.RegisterReplicasServer(p.server, p)
	controlv1.RegisterHeartbeatsServer(p.server, p)
	var done sync.WaitGroup
	done.Go(func() { p.server.Serve(l) })
	t.Cleanup(func() { p.server.Stop(); done.Wait() })
	return p
}

func dial(t *testing.T, o rpc.DialOptions, addresses ...string) controlv1.ReplicasClient {
	t.Helper()
	conn, err := rpc.Dial(addresses, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return controlv1.NewReplicasClient(conn)
}

func named(id string) *peer {
	return &peer{get: func(context.Context) (*berthv1.Replica, error) { return &berthv1.Replica{Id: id}, nil }}
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestACallWithoutADeadlineGetsOne(t *testing.T) {
	deadline := make(chan time.Duration, 1)
	p := serve(t, "", rpc.ServerOptions{Deadline: time.Hour},
		&peer{get: func(ctx context.Context) (*berthv1.Replica, error) {
			at, _ := ctx.Deadline()
			deadline <- time.Until(at)
			return &berthv1.Replica{}, nil
		}})
	client := dial(t, rpc.DialOptions{}, p.addr)
	for _, c := range []struct{ given, most, least time.Duration }{
		{0, time.Hour, 59 * time.Minute},
		{time.Minute, time.Minute, 50 * time.Second},
	} {
		ctx := t.Context()
		if c.given > 0 {
			ctx = within(t, c.given)
		}
		if _, err := client.GetReplica(ctx, &controlv1.GetReplicaRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-deadline; got > c.most || got < c.least {
			t.Errorf("given %v, the handler has %v", c.given, got)
		}
	}
}

func TestAPanicIsInternalAndLoggedWithItsStack(t *testing.T) {
	var log bytes.Buffer
	options := rpc.ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}
	p := serve(t, "", options, &peer{
		get: func(context.Context) (*berthv1.Replica, error) { panic("poisoned unary") },
		beat: func(grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
			panic("poisoned stream")
		},
	})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, unary := controlv1.NewReplicasClient(conn).GetReplica(t.Context(), &controlv1.GetReplicaRequest{})
	stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, streamed := stream.Recv()
	for _, err := range []error{unary, streamed} {
		if f := rpc.FromStatus(err); status.Code(err) != codes.Internal || f.Reason != fault.ReasonInternal ||
			strings.Contains(f.Message, "poisoned") {
			t.Errorf("the caller got %v", err)
		}
	}
	p.server.Stop()
	for _, want := range []string{"poisoned unary", "poisoned stream", "server_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
}

func TestOnlyTheLeaderIsCalled(t *testing.T) {
	a, b := serve(t, "", rpc.ServerOptions{}, named("a")), serve(t, "", rpc.ServerOptions{}, named("b"))
	leader := rpc.LeaderHealth("registry")
	client := dial(t, rpc.DialOptions{Health: leader}, a.addr, b.addr)

	// Without a leader the call waits until its deadline.
	if _, err := client.GetReplica(within(t, 50*time.Millisecond),
		&controlv1.GetReplicaRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("without a leader: %v", err)
	}
	for _, p := range []struct {
		leads, other *peer
		id           string
	}{{b, a, "b"}, {a, b, "a"}, {b, a, "b"}} {
		p.other.server.SetServing(leader, false)
		p.leads.server.SetServing(leader, true)
		// The client notices the change with a delay. Until then, the old leader answers.
		for {
			answer, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if answer.GetId() == p.id {
				break
			}
		}
	}
}

func TestRestartedReplicaIsCalledAtOnce(t *testing.T) {
	// Without the fix, gRPC's own first pause would be a second. A slow machine may also take
	// that long, but not in every round.
	const rounds, most = 3, 900 * time.Millisecond
	best := time.Hour
	for round := 0; round < rounds && best > most; round++ {
		best = min(best, comesBack(t))
	}
	if best > most {
		t.Errorf("took %v", best)
	}
}

// comesBack restarts a replica and returns the time until a call reaches it again.
func comesBack(t *testing.T) time.Duration {
	t.Helper()
	first := serve(t, "", rpc.ServerOptions{}, named("first"))
	client := dial(t, rpc.DialOptions{}, first.addr)
	if _, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{}); err != nil {
		t.Fatal(err)
	}
	first.server.Stop()
	serve(t, first.addr, rpc.ServerOptions{}, named("second"))
	begin := time.Now()
	answer, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{})
	if status.Code(err) == codes.Unavailable {
		// The call was in flight on the old connection when that connection broke.
		answer, err = client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{})
	}
	if err != nil || answer.GetId() != "second" {
		t.Fatalf("got %v, %v", answer, err)
	}
	return time.Since(begin)
}

func TestFailFastDoesNotWait(t *testing.T) {
	client := dial(t, rpc.DialOptions{FailFast: true}, hold(t))
	if _, err := client.GetReplica(within(t, time.Minute),
		&controlv1.GetReplicaRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestBadAddressesAreRefused(t *testing.T) {
	for _, addresses := range [][]string{nil, {"nowhere"}, {"127.0.0.1:1", "[::1"}} {
		if _, err := rpc.Dial(addresses, rpc.DialOptions{}); fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%q: %v", addresses, err)
		}
	}
}

func TestAMessageOverTheLimitIsRefused(t *testing.T) {
	p := serve(t, "", rpc.ServerOptions{MaxMessage: 100}, &peer{
		beat: func(s grpc.BidiStreamingServer[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]) error {
			_, err := s.Recv()
			return err
		},
	})
	conn, err := rpc.Dial([]string{p.addr}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&controlv1.HeartbeatRequest{Id: strings.Repeat("x", 101)}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); rpc.FromStatus(err).Reason != fault.ReasonTooLarge {
		t.Errorf("got %v", err)
	}
}

// A shutdown waits for the calls in progress and cancels them at its deadline.
func TestShutdownIsBounded(t *testing.T) {
	entered := make(chan struct{})
	p := serve(t, "", rpc.ServerOptions{}, &peer{get: func(ctx context.Context) (*berthv1.Replica, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	client := dial(t, rpc.DialOptions{}, p.addr)
	answered := make(chan error, 1)
	go func() {
		_, err := client.GetReplica(within(t, time.Minute), &controlv1.GetReplicaRequest{})
		answered <- err
	}()
	<-entered
	if err := p.server.Shutdown(within(t, 20*time.Millisecond)); err == nil {
		t.Error("Shutdown reported that all calls had finished")
	}
	if err := <-answered; err == nil {
		t.Error("the call was answered")
	}
}

func TestFramesPassUnread(t *testing.T) {
	codec := rpc.FrameCodec()
	message := &berthv1.Replica{Id: "a", Term: 7}
	wire, err := codec.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var frame rpc.Frame
	if err := codec.Unmarshal(wire, &frame); err != nil {
		t.Fatal(err)
	}
	wire.Free()
	again, err := codec.Marshal(&frame)
	if err != nil {
		t.Fatal(err)
	}
	var got berthv1.Replica
	if err := codec.Unmarshal(again, &got); err != nil || got.GetId() != "a" || got.GetTerm() != 7 {
		t.Errorf("got %v, %v", &got, err)
	}
}
