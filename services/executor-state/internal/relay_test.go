package internal

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/testkit/looptest"
)

// relayStream is the gateway's side of a relay that has no socket.
type relayStream struct {
	*pipe[controlv1.RelayRequest, controlv1.RelayAnswer]
	t      *testing.T
	header chan struct{}
}

func (s *relayStream) SendHeader(metadata.MD) error { close(s.header); return nil }

// openRelay opens a relay. The relay ends when the test ends or hangUp is called.
func openRelay(t *testing.T, h *Heartbeats) (s *relayStream, hangUp context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	s = &relayStream{newPipe[controlv1.RelayRequest, controlv1.RelayAnswer](ctx), t, make(chan struct{})}
	done := make(chan struct{})
	go func() { defer close(done); defer cancel(); s.outcome <- h.Relay(s) }()
	t.Cleanup(func() { cancel(); <-done })
	<-s.header
	return s, cancel
}

// bring sends a request of the given agent.
func (s *relayStream) bring(agent uint32, m *controlv1.HeartbeatRequest) {
	s.t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	s.in <- &controlv1.RelayRequest{Requests: []*controlv1.RelayedRequest{{Agent: agent, Request: text}}}
}

// until receives answers until the given agent gets the expected one.
func (s *relayStream) until(agent uint32, is func(*controlv1.HeartbeatAnswer) bool) {
	s.t.Helper()
	for {
		select {
		case m := <-s.out:
			for _, number := range m.GetPresent() {
				if number == agent && is(&controlv1.HeartbeatAnswer{Present: true}) {
					return
				}
			}
			for _, one := range m.GetAnswers() {
				a := &controlv1.HeartbeatAnswer{}
				if err := proto.Unmarshal(one.GetAnswer(), a); err != nil {
					s.t.Fatal(err)
				}
				if one.GetAgent() == agent && is(a) {
					return
				}
			}
		case err := <-s.outcome:
			s.t.Fatalf("the relay has ended: %v", err)
		}
	}
}

func present(a *controlv1.HeartbeatAnswer) bool { return a.GetPresent() && a.GetReport() == nil }

// end receives answers until the given agent's stream ends, and returns the error of that
// stream.
func (s *relayStream) end(agent uint32) *fault.Error {
	s.t.Helper()
	for {
		select {
		case m := <-s.out:
			for _, one := range m.GetEnded() {
				if one.GetAgent() == agent {
					return rpc.Unpack(one.GetFailure())
				}
			}
		case err := <-s.outcome:
			s.t.Fatalf("the relay has ended: %v", err)
		}
	}
}

// A relay serves each agent like a separate stream. Heartbeats keep executors present, and
// reports get answers. An error ends the stream of one agent only. When the stream of an
// agent ends, the prober checks that agent.
func TestRelay(t *testing.T) {
	h, agents := heartbeats(t)
	a, b := register(t, agents, "a", "n").GetIncarnation(), register(t, agents, "b", "n").GetIncarnation()
	s, hangUp := openRelay(t, h)
	s.bring(1, &controlv1.HeartbeatRequest{Id: "a", Incarnation: a})
	s.until(1, present)
	s.bring(2, &controlv1.HeartbeatRequest{Id: "b", Incarnation: b})
	s.until(2, present)
	if h.streams.count != 2 {
		t.Errorf("%d agents send heartbeats", h.streams.count)
	}
	for range 3 {
		s.in <- &controlv1.RelayRequest{Heartbeats: []uint32{1, 2, 99}}
		s.until(1, present)
	}
	s.bring(1, &controlv1.HeartbeatRequest{Id: "a", Incarnation: a, Report: &controlv1.ExecutorReport{Sequence: 5}})
	s.until(1, func(answer *controlv1.HeartbeatAnswer) bool {
		return answer.GetReport().GetSequence() == 5 && answer.GetReport().GetExecutor() == "a"
	})

	for agent, wrong := range map[uint32]*controlv1.HeartbeatRequest{
		3: {Id: "a", Incarnation: a + 99},
		4: {Id: "unknown", Incarnation: 1},
	} {
		s.bring(agent, wrong)
		if f := s.end(agent); f.Reason != fault.ReasonOtherIncarnation && f.Reason != fault.ReasonNotFound {
			t.Errorf("%v gets %v", wrong, f)
		}
		s.in <- &controlv1.RelayRequest{Ended: []uint32{agent}}
	}
	s.bring(2, &controlv1.HeartbeatRequest{Id: "a", Incarnation: a})
	if f := s.end(2); f.Kind != fault.Invalid {
		t.Errorf("another executor on the stream gets %v", f)
	}
	s.in <- &controlv1.RelayRequest{Requests: []*controlv1.RelayedRequest{{Agent: 5, Request: []byte("no message")}}}
	if f := s.end(5); f.Kind != fault.Invalid {
		t.Errorf("an invalid message gets %v", f)
	}

	s.in <- &controlv1.RelayRequest{Ended: []uint32{2, 99}}
	if gone := <-h.prober.queue; gone.id != "b" || gone.incarnation != b {
		t.Errorf("probed %+v", gone)
	}
	hangUp()
	if gone := <-h.prober.queue; gone.id != "a" || gone.incarnation != a {
		t.Errorf("probed %+v", gone)
	}
	if err := <-s.outcome; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
}

// If a gateway does not receive its answers, its relay ends before the queued answers use
// much memory. Many answers are sent as several messages.
func TestRelayBacklogIsLimited(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	r := &relay{ctx: ctx, end: end, wake: make(chan struct{}, 1)}
	one := &relayed{r: r, agent: 1}
	long := &controlv1.HeartbeatAnswer{Report: &controlv1.ExecutorReportAnswer{Executor: strings.Repeat("x",
		relayMessage/4)}}
	for range 9 {
		one.answer(long)
	}
	for _, m := range r.takeAll() {
		if n := len(m.GetAnswers()); n > 3 {
			t.Errorf("%d answers share a message", n)
		}
	}
	for range 4*relayBacklog/relayMessage - 8 {
		one.answer(long)
	}
	if ctx.Err() != nil {
		t.Fatalf("ended already: %v", context.Cause(ctx))
	}
	for range 16 {
		one.answer(long)
	}
	if f := fault.Of(context.Cause(ctx)); f == nil || f.Reason != fault.ReasonOverloaded {
		t.Errorf("the gateway gets %v", f)
	}
}

// A replica accepts no agents before it has read the store. It could keep none of them
// present, and gateways would send it the most agents.
func TestRelayWaitsForTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewFake(store.FakeConfig{})
		reading, read := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s.SetHook(func(_ context.Context, c store.Call) store.Outcome {
			if c.Method == store.MethodPage && c.Key == looptest.Space.Prefix() {
				once.Do(func() { close(reading) })
				<-read
			}
			return store.Outcome{}
		})
		l := looptest.Run(t, s, model.ServiceExecutorState,
			func() *inventory.Core { return inventory.New(inventory.DefaultConfig()) }, NoActions, func(bool) {})
		h := NewHeartbeats(l, s, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
		<-reading
		ctx, cancel := context.WithCancel(context.Background())
		stream := &relayStream{newPipe[controlv1.RelayRequest, controlv1.RelayAnswer](ctx), t, make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- h.Relay(stream) }()
		synctest.Wait()
		select {
		case <-stream.header:
			t.Error("the leader accepts agents before its view is current")
		default:
		}
		close(read)
		<-stream.header
		cancel()
		<-ended
	})
}
