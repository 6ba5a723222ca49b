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
	// linger is how long a heartbeat without a report waits for other heartbeats. It is a
	// small part of the heartbeat interval, and long enough that many heartbeats share a
	// message.
	linger = 50 * time.Millisecond
	// messageSize is the maximum size of the requests that share a message, in bytes. A
	// larger request gets a separate message.
	messageSize = 256 << 10
	// When a relay breaks, it ends the streams of its quiet agents over the time endWithin,
	// in steps of endEvery. If thousands of agents reconnected at once, they would take the
	// processor from the replica that takes over. A quiet agent has time: it need not
	// reconnect before its presence is about to expire.
	endWithin = 500 * time.Millisecond
	endEvery  = 25 * time.Millisecond
	// An agent is quiet if it has sent only heartbeats without a report for the time
	// quietFor. Its last request was then answered, or has waited for that long already.
	quietFor = 5 * time.Second
)

// relay is one stream to a replica.
type relay struct {
	stream grpc.BidiStreamingClient[controlv1.RelayRequest, controlv1.RelayAnswer]
	// wake has one element if queued data must be sent now.
	wake chan struct{}

	mu     sync.Mutex
	agents map[uint32]*agent
	last   uint32 // the number of the newest agent
	closed error
	// The data for the next messages. Each agent has at most one request and one heartbeat
	// in them.
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

// remove removes an agent's stream that has ended, and queues the report of its end to the
// replica.
func (r *relay) remove(a *agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.agents, a.number)
	a.ended = true
	r.ended = append(r.ended, a.number)
	notify(r.wake)
}

// close ends the streams of all agents. It ends the streams of quiet agents in steps, or at
// once when life ends, and all other streams at once.
func (r *relay) close(life context.Context, err error) {
	quiet := r.breakOff(err)
	const steps = int(endWithin / endEvery)
	for some := range slices.Chunk(quiet, 1+len(quiet)/steps) {
		for _, a := range some {
			a.end(err)
		}
		store.Sleep(life, endEvery) //nolint:errcheck // when life has ended, all steps follow at once
	}
}

// breakOff makes the relay accept nothing more from agents, and ends the streams of agents
// that are not quiet. It returns the quiet agents.
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

// accepts reports whether the relay still sends data of an agent. If the relay has ended,
// accepts ends the agent's stream. The caller must hold the lock.
func (r *relay) accepts(a *agent) bool {
	if r.closed != nil && !a.ended {
		a.end(r.closed)
	}
	return r.closed == nil && !a.ended
}

// request queues a request of an agent, to be sent at once. The agent must not call request
// again before it has received from sent.
func (r *relay) request(a *agent, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.accepts(a) {
		a.requested = time.Now()
		r.requests = append(r.requests, request{a, frame})
		notify(r.wake)
	}
}

// heartbeat queues an agent's heartbeat without a report. The heartbeat is sent with the next
// message, at most linger later.
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

// notify adds an element to a channel with space for one element, if the channel is empty.
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

// message is one message to the replica, with the agents whose requests it contains.
type message struct {
	*controlv1.RelayRequest
	of []*agent
}

// messages removes all queued data, and returns it as messages of bounded size. Heartbeats
// come first, so that they do not wait for requests, and ended streams come last.
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

// deliver passes answers to the agents. It drops the answers to agents that have
// disconnected.
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
