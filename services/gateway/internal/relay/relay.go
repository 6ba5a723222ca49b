package relay

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
)

const (
	// linger is how long a heartbeat without news waits for others: a small part of
	// the time between two, and long enough that many share a message.
	linger = 50 * time.Millisecond
	// messageSize is how many bytes share a message; more of one agent's has a
	// message of its own.
	messageSize = 256 << 10
	// endWithin is the time over which the agents of a relay that broke are told, in
	// steps of endEvery: thousands at once would take the processor from whoever takes
	// over, and none of them has to be elsewhere before its presence runs out.
	endWithin = 500 * time.Millisecond
	endEvery  = 25 * time.Millisecond
	// quietFor is how long an agent has sent nothing but beats for it not to be told at
	// once: what it sent before is answered, or has waited for so long already.
	quietFor = 5 * time.Second
)

// relay is one stream to a replica.
type relay struct {
	stream grpc.BidiStreamingClient[controlv1.RelayRequest, controlv1.RelayAnswer]
	// wake has one element when something is to be sent at once.
	wake chan struct{}

	mu     sync.Mutex
	agents map[uint32]*agent
	last   uint32 // number that was given
	closed error
	// What waits to be sent: of each agent at most one request, and one beat.
	requests []request
	beats    []*agent
	ended    []uint32
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

// add takes an agent's stream on; false when the relay has ended.
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

// remove tells the replica that an agent's stream has ended.
func (r *relay) remove(a *agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.agents, a.number)
	a.gone = true
	r.ended = append(r.ended, a.number)
	r.stir()
}

// close ends the streams of all agents: of those that may wait for an answer, or send
// something more, at once, and of the others one after the other, until life ends.
func (r *relay) close(life context.Context, err error) {
	quiet := r.breakOff(err)
	const steps = int(endWithin / endEvery)
	few := (len(quiet) + steps - 1) / steps
	for len(quiet) > 0 {
		for _, a := range quiet[:min(few, len(quiet))] {
			a.end(err)
		}
		if quiet = quiet[min(few, len(quiet)):]; len(quiet) == 0 {
			break
		}
		select {
		case <-time.After(endEvery):
		case <-life.Done(): // the others at once
		}
	}
}

// breakOff takes no more of agents, and ends the streams of those that are not quiet.
func (r *relay) breakOff(err error) (quiet []*agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = err
	for _, a := range r.agents {
		if time.Since(a.asked) < quietFor {
			a.end(err)
		} else {
			quiet = append(quiet, a)
		}
	}
	return quiet
}

// request has sent what an agent sends, at once. The agent waits until it was sent.
func (r *relay) request(a *agent, frame []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.gone {
		return
	}
	if r.closed != nil {
		a.end(r.closed)
		return
	}
	a.asked = time.Now()
	r.requests = append(r.requests, request{a, frame})
	r.stir()
}

// beat has sent that an agent is there, with the next message, soon.
func (r *relay) beat(a *agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.beating || a.gone {
		return
	}
	if r.closed != nil {
		a.end(r.closed)
		return
	}
	a.beating = true
	if r.beats = append(r.beats, a); len(r.beats) == 1 {
		time.AfterFunc(linger, r.stir)
	}
}

func (r *relay) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// send sends what waits until the stream breaks.
func (r *relay) send(ctx context.Context) {
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		for _, m := range r.waiting() {
			if r.stream.Send(m.RelayRequest) != nil {
				return // why, is for receive to tell
			}
			for _, a := range m.of {
				a.sent <- struct{}{}
			}
		}
	}
}

// message is what is sent at a time, and the agents whose requests are in it.
type message struct {
	*controlv1.RelayRequest
	of []*agent
}

// waiting takes what waits to be sent, as messages of bounded size. Beats come first,
// so that they wait for no request, and what ended last.
func (r *relay) waiting() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := message{RelayRequest: &controlv1.RelayRequest{}}
	var messages []message
	for _, a := range r.beats {
		a.beating = false
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
	r.requests, r.beats, r.ended = nil, nil, nil
	return append(messages, m)
}

// receive hands agents what the replica answers, until the stream breaks.
func (r *relay) receive() error {
	for {
		m, err := r.stream.Recv()
		if err != nil {
			return err
		}
		r.hand(m)
	}
}

// hand hands out answers. Of agents that have gone meanwhile nothing is left to do.
func (r *relay) hand(m *controlv1.RelayAnswer) {
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
