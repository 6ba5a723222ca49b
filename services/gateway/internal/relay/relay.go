package relay

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/store"
)

const (
	// linger is how long a heartbeat without news waits for others: a small part of the
	// heartbeat interval, and long enough that many heartbeats share a message.
	linger = 50 * time.Millisecond
	// messageSize bounds the requests that share a message, bytes. A larger request has a
	// message of its own.
	messageSize = 256 << 10
	// When a relay breaks, the streams of its quiet agents are ended over endWithin, in
	// steps of endEvery. Thousands of agents that reconnect at once would take the
	// processor from the replica that takes over, and none of them must reconnect before
	// its presence expires.
	endWithin = 500 * time.Millisecond
	endEvery  = 25 * time.Millisecond
	// quietFor is how long an agent must have sent only heartbeats without news to be
	// quiet: its last request was answered, or has waited that long already.
	quietFor = 5 * time.Second
)

// relay is one stream to a replica.
type relay struct {
	stream grpc.BidiStreamingClient[controlv1.RelayRequest, controlv1.RelayAnswer]
	// wake has one element if there is something to send now.
	wake chan struct{}

	mu     sync.Mutex
	agents map[uint32]*agent
	last   uint32 // the number of the newest agent
	closed error
	// Queued for the next messages: of each agent at most one request and one heartbeat.
	requests   []request
	heartbeats []*agent
	ended      []uint32
}

type request struct {
	of    *agent
	frame []byte
}

func newRelay(stream grpc.BidiStreamingClient[controlv1.RelayRequest, controlv1.RelayAnswer]) *relay {
	return &relay{stream: stream, wake: make(chan struct{}, 1), agents: map[uint32]*agent{}}
}

func (r *relay) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.agents)
}

// add adds an agent's stream. It returns false if the relay has ended.
func (r *relay) add(a *agent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return false
	}
	r.last++
	a.number = r.last
	r.agents[a.number] = a
	return true
}

// remove reports to the replica that an agent's stream has ended.
func (r *relay) remove(a *agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.agents, a.number)
	a.ended = true
	r.ended = append(r.ended, a.number)
	notify(r.wake)
}

// close ends the streams of all agents: of the quiet ones in steps, or at once when life
// ends, and of all others at once.
func (r *relay) close(life context.Context, err error) {
	quiet := r.breakOff(err)
	const steps = int(endWithin / endEvery)
	for some := range slices.Chunk(quiet, 1+len(quiet)/steps) {
		for _, a := range some {
			a.end(err)
		}
		store.Sleep(life, endEvery) //nolint:errcheck // the rest ends at once
	}
}

// breakOff accepts nothing more from agents, and ends the streams of those that are not
// quiet. It returns the quiet ones.
func (r *relay) breakOff(err error) (quiet []*agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = err
	for _, a := range r.agents {
		if time.Since(a.requested) < quietFor {
			a.end(err)
		} else {
			quiet = append(quiet, a)
		}
	}
	return quiet
}

// accepts reports whether the relay still sends for an agent. If the relay has ended, it
// ends the agent's stream. The caller holds the lock.
func (r *relay) accepts(a *agent) bool {
	if r.closed != nil && !a.ended {
		a.end(r.closed)
	}
	return r.closed == nil && !a.ended
}

// request sends a request of an agent now. The agent must not send another one before it
// receives from sent.
func (r *relay) request(a *agent, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepts(a) {
		a.requested = time.Now()
		r.requests = append(r.requests, request{a, frame})
		notify(r.wake)
	}
}

// heartbeat sends an agent's heartbeat without news with the next message, after linger at
// the latest.
func (r *relay) heartbeat(a *agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.queued || !r.accepts(a) {
		return
	}
	a.queued = true
	if r.heartbeats = append(r.heartbeats, a); len(r.heartbeats) == 1 {
		time.AfterFunc(linger, func() { notify(r.wake) })
	}
}

// notify adds an element to a channel that holds one, if it has none.
func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// send sends the queued messages until the stream breaks.
func (r *relay) send(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for _, m := range r.messages() {
			if r.stream.Send(m.RelayRequest) != nil {
				return // receive returns the reason
			}
			for _, a := range m.of {
				a.sent <- struct{}{}
			}
		}
	}
}

// message is one message to the replica, and the agents whose requests are in it.
type message struct {
	*controlv1.RelayRequest
	of []*agent
}

// messages removes everything that is queued, and returns it as messages of bounded size:
// heartbeats first, so that they do not wait for requests, and ended streams last.
func (r *relay) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := message{RelayRequest: &controlv1.RelayRequest{}}
	var messages []message
	for _, a := range r.heartbeats {
		a.queued = false
		m.Heartbeats = append(m.Heartbeats, a.number)
	}
	size := 0
	for _, q := range r.requests {
		if size > 0 && size+len(q.frame) > messageSize {
			messages = append(messages, m)
			m, size = message{RelayRequest: &controlv1.RelayRequest{}}, 0
		}
		m.Requests = append(m.Requests, &controlv1.RelayedRequest{Agent: q.of.number, Request: q.frame})
		m.of = append(m.of, q.of)
		size += len(q.frame)
	}
	m.Ended = r.ended
	r.requests, r.heartbeats, r.ended = nil, nil, nil
	return append(messages, m)
}

// receive passes the replica's answers to the agents until the stream breaks.
func (r *relay) receive() error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return err
		}
		r.deliver(m)
	}
}

// deliver passes answers to the agents. It drops those for agents that have disconnected.
func (r *relay) deliver(m *controlv1.RelayAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range m.GetAnswers() {
		if a := r.agents[one.GetAgent()]; a != nil {
			a.answer(one.GetAnswer())
		}
	}
	for _, number := range m.GetPresent() {
		if a := r.agents[number]; a != nil {
			a.answer(present)
		}
	}
	for _, one := range m.GetEnded() {
		a := r.agents[one.GetAgent()]
		if a == nil {
			continue
		}
		if len(one.GetFailure()) > 0 {
			a.end(rpc.Unpack(one.GetFailure()))
		} else {
			a.end(io.EOF)
		}
	}
}
