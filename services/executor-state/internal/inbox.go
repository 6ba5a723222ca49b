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
	// largeRequest is the size above which a request is decoded aside, and only for an
	// agent that has registered the executor: a decoded report takes up to a hundred
	// times the bytes that it arrives with. A report of 200 workers is smaller.
	largeRequest = 16 << 10
	// registrationWait bounds how long such a request waits for this replica to see
	// the registration.
	registrationWait = 3 * time.Second
)

// inbox are the requests of one agent that wait to be decoded, in the order in which
// they came. Once one waits, those that follow do.
type inbox struct {
	waiting [][]byte
	bytes   int
	busy    bool
	// begun: the first request of the stream was taken.
	begun bool
}

// arrive takes a request that a relay brings, nil for a beat. It does not wait.
func (s *session) arrive(request []byte) {
	s.mu.Lock()
	if !s.inbox.busy && len(request) <= largeRequest {
		s.inbox.begun = true
		s.mu.Unlock()
		s.decode(request)
		return
	}
	if request == nil {
		begun := s.inbox.begun
		s.mu.Unlock()
		if begun {
			s.beat(time.Now(), false)
		}
		return
	}
	in := &s.inbox
	if len(in.waiting) > 0 && (len(in.waiting) >= reportBacklog || in.bytes+len(request) > reportBytes) {
		s.mu.Unlock()
		s.line.end(tooManyReports())
		return
	}
	in.waiting, in.bytes = append(in.waiting, request), in.bytes+len(request)
	begin := !in.busy
	in.busy = true
	s.mu.Unlock()
	if begin {
		go s.guard(s.empty)
	}
}

// decode takes a request, nil for a beat.
func (s *session) decode(request []byte) {
	if request == nil {
		s.take(nil)
		return
	}
	m := &controlv1.HeartbeatRequest{}
	if err := proto.Unmarshal(request, m); err != nil {
		s.line.end(undecodable(err))
		return
	}
	s.take(m)
}

// empty takes the requests that wait, until there are none.
func (s *session) empty() {
	if err := s.awaitRegistration(); err != nil {
		s.line.end(err)
		return
	}
	for {
		s.mu.Lock()
		in := &s.inbox
		if len(in.waiting) == 0 {
			in.waiting, in.busy = nil, false
			s.mu.Unlock()
			return
		}
		request := in.waiting[0]
		in.waiting, in.bytes = in.waiting[1:], in.bytes-len(request)
		s.mu.Unlock()
		// One at a time, of all agents.
		select {
		case s.h.decoding <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		func() {
			defer func() { <-s.h.decoding }()
			s.decode(request)
		}()
		s.mu.Lock()
		in.begun = true
		s.mu.Unlock()
	}
}

// awaitRegistration waits until this replica has seen that the agent registered the
// executor. The error is what the leader would answer an agent that did not.
func (s *session) awaitRegistration() error {
	ctx, cancel := context.WithTimeout(s.ctx, registrationWait)
	defer cancel()
	for pause := admitPause; ; pause *= 2 {
		select {
		case <-s.admitted:
			return nil
		default:
		}
		switch s.look(ctx) {
		case registrant, superseded:
			return nil
		case stranger:
			return errStranger
		case outdated:
			return fault.New(fault.Precondition, fault.ReasonOtherIncarnation, "executor %q has been registered again since incarnation %d", s.id, s.incarnation)
		}
		wait := time.NewTimer(pause)
		select {
		case <-s.admitted:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			return fault.New(fault.Precondition, fault.ReasonNotFound, "executor %q is not registered", s.id)
		}
		wait.Stop()
	}
}

// helloOf decodes who sends a request, and nothing of the report in it.
func helloOf(request []byte) (*controlv1.HeartbeatRequest, error) {
	const report = 3 // the field of HeartbeatRequest
	var rest []byte
	for left := request; len(left) > 0; {
		field, _, n := protowire.ConsumeField(left)
		if n < 0 {
			return nil, undecodable(protowire.ParseError(n))
		}
		if field != report {
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
	return fault.New(fault.Invalid, fault.ReasonInvalid, "a heartbeat that cannot be read").Because(err)
}

func tooManyReports() error {
	return fault.New(fault.Exhausted, fault.ReasonOverloaded, "%d reports or %d bytes of them wait already", reportBacklog, reportBytes)
}
