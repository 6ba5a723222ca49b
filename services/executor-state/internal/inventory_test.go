package internal

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/internal/liveness"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/looptest"
)

func start(t *testing.T, s store.Store) *loop.Loop[*inventory.Core] {
	return looptest.Start(t, s, model.ServiceExecutorState,
		func() *inventory.Core { return inventory.New(inventory.DefaultConfig()) }, NoActions)
}

func register(t *testing.T, agents *Agents, id, nonce string) *controlv1.RegisterAnswer {
	t.Helper()
	answer, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
		Id: id, Address: "127.0.0.1:1", Sku: "small", Host: "h", Nonce: nonce, Resources: map[string]int64{"slots": 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestExecutors(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents, executors := NewAgents(l, "default"), NewExecutors(l)
	var first *controlv1.RegisterAnswer
	for _, id := range []string{"a", "b", "c"} {
		answer := register(t, agents, id, "n")
		if answer.GetIncarnation() == 0 || answer.GetCluster() != "default" ||
			answer.GetHeartbeatEvery().AsDuration() != HeartbeatEvery {
			t.Errorf("registered %v", answer)
		}
		if first == nil {
			first = answer
		}
	}
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agents.Announce(t.Context(), &controlv1.AnnounceRequest{Id: "a", Incarnation: first.GetIncarnation(),
		EtcdLease: lease.ID}); err != nil {
		t.Fatal(err)
	}
	got, err := executors.GetExecutor(t.Context(), &berthv1.GetExecutorRequest{Id: "a"})
	if err != nil || got.GetState() != berthv1.Executor_READY || got.GetSku() != "small" ||
		got.GetResources()["slots"] != 4 || got.GetIncarnation() != first.GetIncarnation() {
		t.Errorf("got %v, %v", got, err)
	}
	var seen []string
	req := &berthv1.ListExecutorsRequest{PageSize: 2}
	for {
		answer, err := executors.ListExecutors(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetTotalSize() != 3 {
			t.Errorf("the total size is %d", answer.GetTotalSize())
		}
		for _, e := range answer.GetExecutors() {
			seen = append(seen, e.GetId())
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(seen) != 3 || seen[0] != "a" || seen[2] != "c" {
		t.Errorf("listed %v", seen)
	}
	for name, test := range map[string]struct {
		call   func() error
		reason fault.Reason
	}{
		"not there": {func() error {
			_, err := executors.GetExecutor(t.Context(), &berthv1.GetExecutorRequest{Id: "z"})
			return err
		}, fault.ReasonNotFound},
		"a bad page": {func() error {
			_, err := executors.ListExecutors(t.Context(), &berthv1.ListExecutorsRequest{PageSize: -1})
			return err
		}, fault.ReasonInvalid},
		"an unknown state": {func() error {
			_, err := executors.ListExecutors(t.Context(), &berthv1.ListExecutorsRequest{State: 256 + berthv1.Executor_READY})
			return err
		}, fault.ReasonInvalid},
		"an attribute without a name": {func() error {
			_, err := executors.ListExecutors(t.Context(),
				&berthv1.ListExecutorsRequest{Attributes: map[string]string{"a b": "c"}})
			return err
		}, fault.ReasonBadName},
		"an attribute twice": {func() error {
			_, err := executors.ListExecutors(t.Context(),
				&berthv1.ListExecutorsRequest{Attributes: map[string]string{"zone": "a", "Zone": "b"}})
			return err
		}, fault.ReasonDuplicate},
		"another incarnation": {func() error {
			_, err := agents.Announce(t.Context(), &controlv1.AnnounceRequest{Id: "a", Incarnation: 99, EtcdLease: lease.ID})
			return err
		}, fault.ReasonOtherIncarnation},
		"an expired etcd lease": {func() error {
			_, err := agents.Announce(t.Context(), &controlv1.AnnounceRequest{Id: "b", Incarnation: first.GetIncarnation(),
				EtcdLease: 999})
			return err
		}, fault.ReasonEtcdLeaseExpired},
	} {
		if err := test.call(); !fault.Is(err, test.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// direct is a client that calls the leader without a gateway.
type direct struct {
	controlv1.AgentsClient
	agents *Agents
}

func (d direct) Announce(ctx context.Context, req *controlv1.AnnounceRequest,
	_ ...grpc.CallOption) (*controlv1.AnnounceAnswer, error) {
	return d.agents.Announce(ctx, req)
}

// pipe is one side of a gRPC stream that has no socket.
type pipe[In, Out any] struct {
	grpc.ServerStream
	ctx     context.Context
	in      chan *In
	out     chan *Out
	outcome chan error
}

func newPipe[In, Out any](ctx context.Context) *pipe[In, Out] {
	return &pipe[In, Out]{ctx: ctx, in: make(chan *In), out: make(chan *Out), outcome: make(chan error, 1)}
}

func (s *pipe[In, Out]) Context() context.Context { return s.ctx }

func (s *pipe[In, Out]) Recv() (*In, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *pipe[In, Out]) Send(m *Out) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// heartbeats returns heartbeats that use a real etcd and its leases.
func heartbeats(t *testing.T) (*Heartbeats, *Agents) {
	t.Helper()
	s := etcdtest.Start(t).Store(t)
	l := start(t, s)
	renewer := liveness.NewRenewer(s.Client())
	reports := newReports(all)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- renewer.Run(ctx) }()
	go func() { ended <- reports.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended; <-ended })
	agents := NewAgents(l, "default")
	gone := &Prober{queue: make(chan brokenStream, 8)}
	return run(t, NewHeartbeats(l, s, renewer, reports, gone, direct{agents: agents}, slog.New(slog.DiscardHandler))),
		agents
}

// stream is the heartbeat stream of one agent.
type stream struct {
	*pipe[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]
}

func open(t *testing.T, h *Heartbeats) (*stream, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{newPipe[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer](ctx)}
	// gRPC ends a stream's context when its handler has returned.
	go func() { defer cancel(); s.outcome <- h.Heartbeat(s) }()
	return s, cancel
}

// beat sends a heartbeat, and returns the first answer or the error of the stream.
func (s *stream) beat(m *controlv1.HeartbeatRequest) (*controlv1.HeartbeatAnswer, error) {
	select {
	case s.in <- m:
	case err := <-s.outcome:
		return nil, err
	}
	select {
	case answer := <-s.out:
		return answer, nil
	case err := <-s.outcome:
		return nil, err
	}
}

func TestHeartbeats(t *testing.T) {
	h, agents := heartbeats(t)
	first := register(t, agents, "a", "first").GetIncarnation()
	hello := &controlv1.HeartbeatRequest{Id: "a", Incarnation: first}

	s, _ := open(t, h)
	for range 3 {
		if answer, err := s.beat(hello); err != nil || !answer.GetPresent() {
			t.Fatal(answer, err)
		}
	}
	if h.streams.count != 1 || h.streams.late.Count() != 2 || h.streams.late.Sum != 0 {
		t.Errorf("3 heartbeats on one stream count as %d streams, %+v", h.streams.count, h.streams.late)
	}
	// A report gets an answer of its own.
	s.in <- &controlv1.HeartbeatRequest{Id: "a", Incarnation: first, Report: &controlv1.ExecutorReport{Sequence: 5}}
	for reported := false; !reported; {
		answer := <-s.out
		reported = answer.GetReport().GetSequence() == 5 && answer.GetReport().GetExecutor() == "a"
	}
	var presence inventory.Presence
	if err := h.loop.Read(t.Context(), false, func(c *inventory.Core) { presence, _ = c.Presence("a") }); err != nil {
		t.Fatal(err)
	}
	close(s.in)
	for ended := false; !ended; {
		select {
		case <-s.out:
		case err := <-s.outcome:
			if ended = true; err != nil {
				t.Errorf("an agent that closes its stream gets %v", err)
			}
		}
	}
	// The agent may be dead, so the prober checks its address.
	want := brokenStream{id: "a", address: presence.Executor.Address, incarnation: first, lease: presence.Live.EtcdLease}
	if got := <-h.prober.queue; got != want {
		t.Errorf("probed %+v, want %+v", got, want)
	}

	s, cancel := open(t, h)
	if answer, err := s.beat(hello); err != nil || !answer.GetPresent() {
		t.Fatal(answer, err)
	}
	_, err := s.beat(&controlv1.HeartbeatRequest{Id: "b", Incarnation: first})
	if f := fault.Of(err); f == nil || f.Kind != fault.Invalid {
		t.Errorf("another executor on the stream: %v", err)
	}
	cancel()

	// The agent cancels its stream.
	s, cancel = open(t, h)
	cancel()
	if err := <-s.outcome; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// An agent whose directory belongs to another cluster is refused before it gets an incarnation.
// The answer to the first registration tells an agent its cluster.
func TestRegistrationsOfAnotherClusterAreRefused(t *testing.T) {
	l := start(t, store.NewFake(store.FakeConfig{}))
	agents := NewAgents(l, "blue")
	request := &controlv1.RegisterRequest{Id: "h1", Address: "h1:1", Sku: "sim", Nonce: "n1", Secret: "s1",
		Cluster: "green"}
	if _, err := agents.Register(t.Context(), request); !fault.Is(err, fault.ReasonOtherCluster) {
		t.Errorf("another cluster: %v", err)
	}
	for _, own := range []string{"", "blue"} {
		request.Cluster, request.Nonce = own, "of "+own
		if answer, err := agents.Register(t.Context(), request); err != nil || answer.GetCluster() != "blue" {
			t.Errorf("%q: %v %v", own, answer, err)
		}
	}
}
