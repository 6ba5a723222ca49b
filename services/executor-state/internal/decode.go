package internal

import (
	"context"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
)

const (
	// largeRequest is the size above which a request is queued to be decoded. Such a request
	// is decoded only for an agent that has registered the executor, because a decoded
	// report takes up to a hundred times the bytes of the message. A report of 200 workers
	// is smaller than largeRequest.
	largeRequest = 16 << 10
	// registrationWait limits how long a large request waits until this replica sees the
	// registration.
	registrationWait = 3 * time.Second
)

// backlog holds the pending items of a session in order. running reports whether a
// goroutine handles them.
type backlog[T any] struct {
	items   []T
	bytes   int
	running bool
}

// push appends an item. It reports whether there was space, and whether the caller must
// start the goroutine. An empty backlog accepts an item of any size.
func (b *backlog[T]) push(item T, size int) (start, ok bool) {
	if len(b.items) > 0 && (len(b.items) >= reportBacklog || b.bytes+size > reportBytes) {
		return false, false
	}
	b.items, b.bytes = append(b.items, item), b.bytes+size
	start, b.running = !b.running, true
	return start, true
}

// pop removes and returns the first item. If there is none, it returns false, and the
// goroutine must end.
func (b *backlog[T]) pop(size func(T) int) (item T, ok bool) {
	if len(b.items) == 0 {
		*b = backlog[T]{}
		return item, false
	}
	item = b.items[0]
	b.items, b.bytes = b.items[1:], max(0, b.bytes-size(item))
	return item, true
}

// receive handles a request from a relay without waiting; a nil request is a heartbeat.
// While a large request is queued, later requests are queued too.
func (s *session) receive(request []byte) {
	s.mu.Lock()
	if !s.undecoded.running && len(request) <= largeRequest {
		s.begun = true
		s.mu.Unlock()
		s.decode(request)
		return
	}
	if request == nil {
		begun := s.begun
		s.mu.Unlock()
		if begun {
			s.heartbeat(time.Now(), false)
		}
		return
	}
	start, ok := s.undecoded.push(request, len(request))
	s.mu.Unlock()
	switch {
	case !ok:
		s.stream.end(tooManyReports())
	case start:
		go s.guard(s.decodeQueued)
	}
}

// decode decodes and handles a request; a nil request is a heartbeat.
func (s *session) decode(request []byte) {
	if request == nil {
		s.handle(nil)
		return
	}
	m := &controlv1.HeartbeatRequest{}
	if err := proto.Unmarshal(request, m); err != nil {
		s.stream.end(undecodable(err))
		return
	}
	s.handle(m)
}

// decodeQueued decodes queued requests until there are none. A replica decodes one large
// request at a time.
func (s *session) decodeQueued() {
	if err := s.awaitRegistration(); err != nil {
		s.stream.end(err)
		return
	}
	for {
		s.mu.Lock()
		request, ok := s.undecoded.pop(func(r []byte) int { return len(r) })
		s.mu.Unlock()
		if !ok {
			return
		}
		err := s.h.decoding.do(s.ctx, func() error {
			s.decode(request)
			return nil
		})
		if err != nil {
			return // the stream has ended
		}
		s.mu.Lock()
		s.begun = true
		s.mu.Unlock()
	}
}

// pollRegistration looks at the registration of the agent until the agent is admitted,
// decide returns true, or ctx ends. The first look is after pause.
func (s *session) pollRegistration(ctx context.Context, pause time.Duration,
	decide func(registration) (done bool, err error)) error {
	for ; ; pause = min(max(admitPause, 2*pause), heartbeatTimeout) {
		select {
		case <-s.admitted:
			return nil
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if done, err := decide(s.look(ctx)); done {
			return err
		}
	}
}

// awaitRegistration waits until this replica sees that the agent registered the executor.
// If the agent did not, it returns the error that the leader would return to the agent.
func (s *session) awaitRegistration() error {
	missing := fault.New(fault.Precondition, fault.ReasonNotFound, "executor %q is not registered", s.id)
	ctx, cancel := context.WithTimeoutCause(s.ctx, registrationWait, missing)
	defer cancel()
	return s.pollRegistration(ctx, 0, func(r registration) (done bool, err error) {
		switch r {
		case registered, superseded:
			return true, nil
		case otherAgent:
			return true, errOtherAgent
		case outdated:
			return true, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
				"executor %q has been registered again since incarnation %d", s.id, s.incarnation)
		}
		return false, nil
	})
}

// awaitAdmission waits until this replica knows that the agent is the one that registered
// the executor. Usually the first heartbeat admits the agent. If not, this replica has
// not seen the registration yet. awaitAdmission returns an error if another agent
// registered the executor.
func (s *session) awaitAdmission() error {
	return s.pollRegistration(s.ctx, admitPause, func(r registration) (done bool, err error) {
		switch r {
		case registered:
			s.admit()
			return true, nil
		case otherAgent:
			return true, errOtherAgent
		}
		return false, nil
	})
}

// decodeHello decodes a request without its report, its list of volumes and its answers to offers,
// to get the sender.
func decodeHello(request []byte) (*controlv1.HeartbeatRequest, error) {
	const report, volumes, answers = 3, 5, 6 // fields of HeartbeatRequest
	var rest []byte
	for left := request; len(left) > 0; {
		field, _, n := protowire.ConsumeField(left)
		if n < 0 {
			return nil, undecodable(protowire.ParseError(n))
		}
		if field != report && field != volumes && field != answers {
			rest = append(rest, left[:n]...)
		}
		left = left[n:]
	}
	m := &controlv1.HeartbeatRequest{}
	if err := proto.Unmarshal(rest, m); err != nil {
		return nil, undecodable(err)
	}
	return m, nil
}

func undecodable(err error) error {
	return fault.New(fault.Invalid, fault.ReasonInvalid, "the heartbeat cannot be decoded").Because(err)
}

func tooManyReports() error {
	return fault.New(fault.Exhausted, fault.ReasonOverloaded, "too many pending reports: at most %d, or %d bytes",
		reportBacklog, reportBytes)
}
