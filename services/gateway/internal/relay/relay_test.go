package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/services/gateway/internal/relay"
	"berth.dev/services/gateway/internal/replicatest"
)

// replica is a replica of executor-state. It stores the messages that its relays receive,
// and answers each message with the given function.
type replica struct {
	*replicatest.Replica
	answer func(*controlv1.RelayRequest) *controlv1.RelayAnswer

	mu     sync.Mutex
	got    []*controlv1.RelayRequest
	relays int
}

// start starts a replica. By default it answers that every agent is present.
func start(t *testing.T, answer func(*controlv1.RelayRequest) *controlv1.RelayAnswer) *replica {
	r := &replica{answer: answer}
	if answer == nil {
		r.answer = allPresent
	}
	r.Replica = replicatest.Start(t, "", replicatest.Answers{Relay: r.relay})
	r.SetServing(model.ServiceExecutorState, true)
	return r
}

func (r *replica) relay(s grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	r.mu.Lock()
	r.relays++
	r.mu.Unlock()
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.got = append(r.got, m)
		r.mu.Unlock()
		if err := s.Send(r.answer(m)); err != nil {
			return err
		}
	}
}

// seen returns the messages that were received so far, and the number of relays.
func (r *replica) seen() (got []*controlv1.RelayRequest, relays int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got), r.relays
}

// until waits until the received messages satisfy a condition.
func (r *replica) until(t *testing.T, what string, is func(got []*controlv1.RelayRequest) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		got, _ := r.seen()
		if is(got) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not %s, of %d messages", what, len(got))
		}
	}
}

func allPresent(m *controlv1.RelayRequest) *controlv1.RelayAnswer {
	a := &controlv1.RelayAnswer{Present: m.GetHeartbeats()}
	for _, q := range m.GetRequests() {
		a.Present = append(a.Present, q.GetAgent())
	}
	return a
}

// gateway is a gRPC server with relays, and a client of that server.
type gateway struct {
	*relay.Relays
	agents controlv1.HeartbeatsClient
}

func open(t *testing.T, replicas ...string) *gateway {
	t.Helper()
	r, err := relay.New(relay.Options{Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.ServerOptions{})
	r.Register(server)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { _ = server.Serve(l) })
	conn, err := rpc.Dial([]string{l.Addr().String()}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		stop()
		running.Wait()
		r.Close()
	})
	return &gateway{r, controlv1.NewHeartbeatsClient(conn)}
}

type stream = grpc.BidiStreamingClient[controlv1.HeartbeatRequest, controlv1.HeartbeatAnswer]

// agent opens the stream of an agent and waits for the first answer.
func (g *gateway) agent(t *testing.T, id string) stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return g.agentFor(t, ctx, id)
}

// agentFor does the same as agent, but the stream ends when ctx ends.
func (g *gateway) agentFor(t *testing.T, ctx context.Context, id string) stream {
	t.Helper()
	s, err := g.agents.Heartbeat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	beat(t, s, &controlv1.HeartbeatRequest{Id: id, Incarnation: 1, Report: &controlv1.ExecutorReport{Complete: true}})
	return s
}

// beat sends a heartbeat and receives its answer.
func beat(t *testing.T, s stream, m *controlv1.HeartbeatRequest) {
	t.Helper()
	if err := s.Send(m); err != nil {
		t.Fatal(err)
	}
	if answer, err := s.Recv(); err != nil || !answer.GetPresent() {
		t.Fatalf("answered %v, %v", answer, err)
	}
}

func requestOf(t *testing.T, q *controlv1.RelayedRequest) *controlv1.HeartbeatRequest {
	t.Helper()
	m := &controlv1.HeartbeatRequest{}
	if err := proto.Unmarshal(q.GetRequest(), m); err != nil {
		t.Error(err)
	}
	return m
}

// The agents of a gateway share one stream. The requests of each agent stay in order. A
// repeated heartbeat is sent only as the number of the agent. Each agent gets its own
// answers, and its stream ends on its own.
func TestAgentsShareAStream(t *testing.T) {
	const agents, reports = 20, 5
	a := start(t, func(m *controlv1.RelayRequest) *controlv1.RelayAnswer {
		answer := &controlv1.RelayAnswer{Present: m.GetHeartbeats()}
		for _, q := range m.GetRequests() {
			request := requestOf(t, q)
			text, err := proto.Marshal(&controlv1.HeartbeatAnswer{Present: true,
				AssignerTerm: request.GetReport().GetSequence()})
			if err != nil {
				t.Error(err)
			}
			answer.Answers = append(answer.Answers, &controlv1.RelayedAnswer{Agent: q.GetAgent(), Answer: text})
			if request.GetReport().GetSequence() == reports {
				failure := rpc.Pack(fault.New(fault.Precondition, fault.ReasonOtherIncarnation, "%s was replaced", request.GetId()))
				answer.Ended = append(answer.Ended, &controlv1.RelayedEnd{Agent: q.GetAgent(), Failure: failure})
			}
		}
		return answer
	})
	g := open(t, a.Address)
	var all sync.WaitGroup
	for i := range agents {
		id := fmt.Sprint("e", i)
		s := g.agent(t, id)
		all.Go(func() {
			for range 3 {
				beat(t, s, &controlv1.HeartbeatRequest{Id: id, Incarnation: 1})
			}
			for n := int64(1); n <= reports; n++ {
				if err := s.Send(&controlv1.HeartbeatRequest{Id: id, Incarnation: 1,
					Report: &controlv1.ExecutorReport{Sequence: n}}); err != nil {
					t.Error(err)
				}
			}
			for n := int64(1); n <= reports; n++ {
				if answer, err := s.Recv(); err != nil || answer.GetAssignerTerm() != n {
					t.Errorf("%s: report %d is answered %v, %v", id, n, answer, err)
				}
			}
			_, err := s.Recv()
			if f := rpc.FromStatus(err); f == nil || f.Reason != fault.ReasonOtherIncarnation ||
				f.Message != id+" was replaced" {
				t.Errorf("%s ended with %v", id, err)
			}
		})
	}
	all.Wait()
	a.until(t, "all ended", func(got []*controlv1.RelayRequest) bool {
		ended := 0
		for _, m := range got {
			ended += len(m.GetEnded())
		}
		return ended == agents
	})
	ids, beats := map[uint32]string{}, map[uint32]int{}
	got, relays := a.seen()
	for _, m := range got {
		for _, q := range m.GetRequests() {
			request := requestOf(t, q)
			if id, known := ids[q.GetAgent()]; known && id != request.GetId() {
				t.Errorf("%d is %s and %s", q.GetAgent(), id, request.GetId())
			}
			ids[q.GetAgent()] = request.GetId()
		}
		for _, agent := range m.GetHeartbeats() {
			beats[agent]++
		}
	}
	if relays != 1 || len(ids) != agents {
		t.Errorf("%d streams for %d agents", relays, len(ids))
	}
	for agent := range ids {
		// The first heartbeat without a report is sent as a whole request.
		if beats[agent] != 2 {
			t.Errorf("%d heartbeats of %s were sent as its number", beats[agent], ids[agent])
		}
	}
}

// Agents are distributed over the replicas. If a replica fails, the streams of its agents
// end at once, and the agents reconnect to the other replica.
func TestAgentsOfAReplicaThatDies(t *testing.T) {
	a, b := start(t, nil), start(t, nil)
	g := open(t, a.Address, b.Address)
	met := func(r *replica) bool { got, _ := r.seen(); return len(got) > 0 }
	first := g.agent(t, "first")
	one, other := a, b
	if met(b) {
		one, other = b, a
	}
	// The relay to the other replica may open later.
	for deadline := time.Now().Add(20 * time.Second); !met(other); g.agent(t, "another") {
		if time.Now().After(deadline) {
			t.Fatal("the agents are all on one relay")
		}
	}
	one.Stop()
	if _, err := first.Recv(); rpc.FromStatus(err).Kind != fault.Unavailable {
		t.Errorf("the agent gets %v", err)
	}
	beat(t, g.agent(t, "first"), &controlv1.HeartbeatRequest{Id: "first", Incarnation: 1})
}

// If an agent closes its stream or disconnects, the gateway reports that to the replica.
func TestEndOfAnAgent(t *testing.T) {
	a := start(t, nil)
	g := open(t, a.Address)
	ended := func(n uint32) {
		t.Helper()
		a.until(t, "ended", func(got []*controlv1.RelayRequest) bool {
			return slices.ContainsFunc(got, func(m *controlv1.RelayRequest) bool { return slices.Contains(m.GetEnded(), n) })
		})
	}
	s := g.agent(t, "a")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("the stream ended with %v", err)
	}
	ended(1)
	ctx, hangUp := context.WithCancel(t.Context())
	s, err := g.agents.Heartbeat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	beat(t, s, &controlv1.HeartbeatRequest{Id: "b", Incarnation: 1})
	hangUp()
	ended(2)
}

// A gateway that stops ends its agents' streams and rejects new ones.
func TestStop(t *testing.T) {
	a := start(t, nil)
	g := open(t, a.Address)
	s := g.agent(t, "a")
	g.End()
	for range 2 {
		if _, err := s.Recv(); rpc.FromStatus(err).Message != "this gateway is stopping; another gateway answers" {
			t.Errorf("the agent gets %v", err)
		}
		var err error
		if s, err = g.agents.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// If an agent does not read its answers, or sends without end, it delays no other agent.
func TestASlowAgentDelaysNoOther(t *testing.T) {
	long := strings.Repeat("x", 8<<10)
	sequence := int64(0)
	a := start(t, func(m *controlv1.RelayRequest) *controlv1.RelayAnswer {
		answer := &controlv1.RelayAnswer{}
		for _, q := range m.GetRequests() {
			if requestOf(t, q).GetId() != "deaf" {
				answer.Present = append(answer.Present, q.GetAgent())
				continue
			}
			// Each answer is different, so the relay drops none as a repetition.
			sequence++
			text, err := proto.Marshal(&controlv1.HeartbeatAnswer{Present: true, AssignerTerm: sequence,
				Report: &controlv1.ExecutorReportAnswer{Executor: long}})
			if err != nil {
				t.Error(err)
			}
			answer.Answers = append(answer.Answers, &controlv1.RelayedAnswer{Agent: q.GetAgent(), Answer: text})
		}
		return answer
	})
	g := open(t, a.Address)
	ctx, hangUp := context.WithCancel(t.Context())
	deaf := g.agentFor(t, ctx, "deaf")
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := int64(0); ; n++ {
			if deaf.Send(&controlv1.HeartbeatRequest{Id: "deaf", Incarnation: 1,
				Report: &controlv1.ExecutorReport{Sequence: n}}) != nil {
				return // the stream has ended
			}
		}
	})
	s := g.agent(t, "quick")
	a.until(t, "cut off", func(got []*controlv1.RelayRequest) bool {
		beat(t, s, &controlv1.HeartbeatRequest{Id: "quick", Incarnation: 1, Report: &controlv1.ExecutorReport{Sequence: 1}})
		return slices.ContainsFunc(got, func(m *controlv1.RelayRequest) bool { return slices.Contains(m.GetEnded(), 1) })
	})
	hangUp()
	sending.Wait()
}
