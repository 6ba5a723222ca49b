package watch

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/services/gateway/internal/rest"
)

// The times of calls.
const (
	// minPause and maxPause bound the time between two calls of a path. In between, it is
	// costShare times the time of the last call, so that a path takes at most about 5 % of a
	// core. A call that takes longer than maxPause/costShare waits for a replica rather than
	// for a processor, because maxAnswer bounds the work.
	minPause  = time.Second
	maxPause  = 5 * time.Second
	costShare = 20
	// callTimeout is the maximum time of a call. While a service has no leader, the calls to it
	// wait that long, and then fail.
	callTimeout = 5 * time.Second
	// wakePause is the minimum time between two calls of a path because leaders changed.
	wakePause = 100 * time.Millisecond
)

// poller repeats the call of one path for the streams with one key.
type poller struct {
	key    key
	caller access.Caller // of the first stream
	path   path
	cancel context.CancelFunc
	wake   chan struct{}

	// The mutex of the server guards these fields.
	followers map[*follower]struct{}
	callers   map[string]int // of the followers, with the number of their streams
	latest    *answer
}

// answer is the answer of a call or its error.
type answer struct {
	digest digest
	text   []byte // the data of the event
	body   []byte // the part of text with the answer
	failed bool
	// final is true if the call always fails, such as for a caller without the role.
	final   bool
	holders int // the poller, and the streams that write the answer
}

// poll repeats a call until ctx ends or the answer is final.
func (s *Server) poll(ctx context.Context, p *poller) {
	var last *answer
	for {
		begun := time.Now()
		status, body := s.call(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if last == nil || !bytes.Equal(body, last.body) {
			last = s.publish(p, p.path.answer(status, body))
		}
		if last.final {
			return
		}
		took := time.Since(begun)
		pause := min(max(costShare*took, minPause), maxPause)
		if took >= callTimeout {
			pause = minPause // the call waited
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// call makes the call of a poller. A panic ends the call, as in a handler of net/http, and not
// the gateway.
func (s *Server) call(ctx context.Context, p *poller) (status int, body []byte) {
	s.mu.Lock()
	s.called++
	s.mu.Unlock()
	defer func() {
		if recover() != nil {
			status, body = failure(fault.New(fault.Internal, fault.ReasonInternal, "the call panicked"))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, err := s.options.Guard.Repeat(ctx, p.caller)
	if err != nil {
		return failure(err)
	}
	return s.calls.Get(ctx, p.path.url, maxAnswer)
}

// failure returns the answer of a call that was not made.
func failure(err error) (status int, body []byte) {
	return rpc.HTTPStatus(rpc.FromStatus(err).Kind), rest.ErrorJSON(err)
}

// errMemory is the error of an answer for which there is no memory.
var errMemory = fault.New(fault.Unavailable, fault.ReasonOverloaded,
	"the answers of all watches have more than %d bytes; try again later", maxMemory)

// isFinal reports whether a call with this HTTP status always fails. An object that is not found
// may be created later.
func isFinal(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// publish makes an answer the latest one, or an error if there is no memory for the answer. It
// wakes the streams if the answer differs from the last one. It returns the latest answer.
func (s *Server) publish(p *poller, a *answer) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := p.latest
	s.releaseLocked(before)
	if !a.failed && s.memory+len(a.text) > maxMemory {
		a = p.path.answer(failure(errMemory))
	}
	if a.final {
		s.forget(p)
	}
	if len(p.followers) == 0 {
		return a // leave has released the answer before
	}
	p.latest, a.holders = a, 1
	s.memory += len(a.text)
	if before != nil && before.digest == a.digest {
		return a
	}
	for f := range p.followers {
		select {
		case f.changed <- struct{}{}:
		default: // the stream has not seen the last change yet
		}
	}
	return a
}

// hold returns the latest answer of a poller, or nil. The caller must release it.
func (s *Server) hold(p *poller) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.latest != nil {
		p.latest.holders++
	}
	return p.latest
}

func (s *Server) release(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(a)
}

// releaseLocked counts the memory of an answer that has no other holder as free.
func (s *Server) releaseLocked(a *answer) {
	if a == nil {
		return
	}
	if a.holders--; a.holders == 0 {
		s.memory -= len(a.text)
	}
}

// Reached reports whether the gateway reaches the leader that serves a gRPC service. A change
// is soon visible in many answers, so Run repeats all calls.
func (s *Server) Reached(service string, reached bool) {
	s.mu.Lock()
	changed := s.reached[service] != reached
	s.reached[service] = reached
	s.mu.Unlock()
	if !changed {
		return
	}
	select {
	case s.woken <- struct{}{}:
	default: // the wake-up to come follows this change too
	}
}

// Run repeats all calls after a leader has changed: at once, and a moment later, when the
// replicas have their new roles. It returns when ctx, the life of the server, has ended and no
// poller runs.
func (s *Server) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-s.woken:
		case <-ctx.Done():
		}
		for range 2 {
			s.wakeAll()
			select {
			case <-time.After(wakePause):
			case <-ctx.Done():
			}
		}
	}
	// After this, follow starts no poller.
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // it waits for follow
	s.running.Wait()
	return nil
}

func (s *Server) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pollers {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}
