package internal

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

const (
	// relayMessage is how many bytes of answers share a message. A larger answer is sent in
	// a message of its own.
	relayMessage = 256 << 10
	// relayBacklog is how many bytes of answers may be pending for a gateway. If a gateway
	// receives no answers, its stream is ended at this limit, and its agents continue
	// through another gateway.
	relayBacklog = 16 << 20
	// relayOverhead is about how many bytes an answer needs in addition to its content.
	relayOverhead = 8
)

// relay is the stream of one gateway, which carries the heartbeats of many agents.
type relay struct {
	h   *Heartbeats
	ctx context.Context
	end context.CancelCauseFunc
	// agents is used only by the receiving goroutine.
	agents map[uint32]*relayed

	mu      sync.Mutex
	answers []*controlv1.RelayAnswer // pending messages in order; the last is being filled
	size    int                      // the size of the last message
	backlog int
	wake    chan struct{}
}

// Relay implements control.v1.Heartbeats for a gateway.
func (h *Heartbeats) Relay(stream grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error {
	// A gateway sends most agents to the replica with the fewest agents. A replica that has
	// not yet read the agents' etcd leases would let these leases expire.
	select {
	case <-h.loop.Followed():
	case <-h.loop.Ended():
		return errStopping
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	// The header shows the gateway that this replica supports Relay.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	r := &relay{h: h, ctx: ctx, end: end, agents: map[uint32]*relayed{}, wake: make(chan struct{}, 1)}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				r.leave()
				end(err)
				return
			}
			r.handle(m)
		}
	}()
	for {
		select {
		case <-h.loop.Ended():
			return errStopping
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.wake:
			for _, m := range r.takeAll() {
				if err := stream.Send(m); err != nil {
					end(err)
					break
				}
			}
		}
	}
}

// handle handles a message of the gateway. It ignores heartbeats of streams that this
// replica has ended.
func (r *relay) handle(m *controlv1.RelayRequest) {
	for _, q := range m.GetRequests() {
		a := r.agents[q.GetAgent()]
		if a == nil {
			hello, err := decodeHello(q.GetRequest())
			if err != nil {
				r.ended(q.GetAgent(), err)
				continue
			}
			a = r.begin(q.GetAgent(), hello)
		}
		a.session.receive(q.GetRequest())
	}
	for _, agent := range m.GetHeartbeats() {
		if a := r.agents[agent]; a != nil {
			a.session.receive(nil)
		}
	}
	for _, agent := range m.GetEnded() {
		if a := r.agents[agent]; a != nil {
			a.leave()
		}
	}
}

func (r *relay) begin(agent uint32, first *controlv1.HeartbeatRequest) *relayed {
	ctx, cancel := context.WithCancelCause(r.ctx)
	a := &relayed{r: r, agent: agent, cancel: cancel}
	a.session = r.h.begin(ctx, first, a)
	r.agents[agent] = a
	return a
}

// leave ends the sessions of all agents, after the gateway's stream has ended.
func (r *relay) leave() {
	for _, a := range r.agents {
		a.leave()
	}
}

// relayed is the stream of one agent over a relay.
type relayed struct {
	r       *relay
	agent   uint32
	session *session
	cancel  context.CancelCauseFunc
}

// leave ends the session when the agent's stream has ended.
func (l *relayed) leave() {
	delete(l.r.agents, l.agent)
	l.cancel(nil)
	l.session.leave()
}

func (l *relayed) answer(a *controlv1.HeartbeatAnswer) {
	if a.GetPresent() && a.GetAssignerTerm() == 0 && a.GetReport() == nil && !a.GetEverything() &&
		a.GetVolumesSequence() == 0 && a.GetOffers() == nil {
		l.r.put(0, func(m *controlv1.RelayAnswer) { m.Present = append(m.Present, l.agent) })
		return
	}
	text, err := proto.Marshal(a)
	if err != nil {
		l.end(err) // Marshal fails only for invalid UTF-8
		return
	}
	l.r.put(len(text), func(m *controlv1.RelayAnswer) {
		m.Answers = append(m.Answers, &controlv1.RelayedAnswer{Agent: l.agent, Answer: text})
	})
}

func (l *relayed) end(err error) {
	l.cancel(err)
	l.r.ended(l.agent, err)
}

// ended makes the gateway end an agent's stream.
func (r *relay) ended(agent uint32, err error) {
	failure := rpc.Pack(err)
	r.put(len(failure), func(m *controlv1.RelayAnswer) {
		m.Ended = append(m.Ended, &controlv1.RelayedEnd{Agent: agent, Failure: failure})
	})
}

// put adds an answer with a size to the pending answers.
func (r *relay) put(size int, add func(*controlv1.RelayAnswer)) {
	size += relayOverhead
	r.mu.Lock()
	if len(r.answers) == 0 || r.size+size > relayMessage {
		r.answers, r.size = append(r.answers, &controlv1.RelayAnswer{}), 0
	}
	add(r.answers[len(r.answers)-1])
	r.size += size
	r.backlog += size
	full := r.backlog > relayBacklog
	r.mu.Unlock()
	if full {
		r.end(fault.New(fault.Exhausted, fault.ReasonOverloaded, "the gateway has not received %d bytes of answers",
			relayBacklog))
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// takeAll removes and returns the pending answers.
func (r *relay) takeAll() []*controlv1.RelayAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := r.answers
	r.answers, r.backlog = nil, 0
	return answers
}
