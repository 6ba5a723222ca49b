// Package watch serves GET /v1/watch: one stream with the answers of several REST calls, each
// whenever it changes. A web page follows all its lists with one connection. An answer that a
// stream sends is what its caller would get from the REST call.
//
//	stream ─┐             ┌─▶ poller of (caller, path) ─┐
//	stream ─┼─▶ followers ┼─▶ poller                    ├─ GET ─▶ rest.Calls ─▶ guard ─▶ services
//	stream ─┘             └─▶ poller                   ─┘
//	                            ▲
//	  a leader changed ─ Reached ┘
//
// Streams of the same caller and path share one poller, so the number of calls does not depend
// on the number of streams. All viewers count as one caller, and so do all operators, because
// the services answer them alike. A stream writes the latest answer of each path: it drops those
// answers that its reader was too slow for.
package watch

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/services/gateway/internal/rest"
	"berth.dev/services/gateway/internal/stream"
)

// Limits of all streams together.
const (
	// maxPollers is the maximum number of different callers and paths.
	maxPollers = 1000
	// maxShare is the maximum number of different paths of one caller that starts new calls, so
	// that the others can still watch.
	maxShare = maxPollers / 2
	// maxAnswer is the maximum size of an answer, and maxMemory the maximum memory of all
	// answers that a poller keeps or a stream writes.
	maxAnswer = 4 << 20
	maxMemory = 64 << 20
)

// Calls makes calls. It is implemented by rest.Calls.
type Calls interface {
	Get(ctx context.Context, at *url.URL, limit int) (status int, body []byte)
	Pattern(at *url.URL) string
}

// Options are the options of a server. Only tests use a Patience and a Heartbeat that differ
// from those of package stream.
type Options struct {
	Patience, Heartbeat time.Duration
	// Admit counts a stream of a job service, as stream.Server.Admit does.
	Admit func(job string) (end func(cause error), err error)
	// Guard is the guard that has admitted the streams.
	Guard *access.Guard
}

// Server serves the streams.
type Server struct {
	// When life ends, all streams and pollers end.
	life    context.Context
	calls   Calls
	options Options
	woken   chan struct{} // has an element after a leader has changed
	running sync.WaitGroup

	mu      sync.Mutex
	pollers map[key]*poller
	memory  int // the bytes of all answers
	reached map[string]bool
	called  uint64
	sent    uint64
}

// key identifies what streams share.
type key struct {
	trusted bool
	session bool              // only for an answer that says it
	caller  identity.Identity // without a name if the answer is the same for all callers with the role
	path    string
}

// keyOf returns the key of a path in the streams of a caller.
func keyOf(c access.Caller, p path) key {
	k := key{trusted: c.Trusted, session: c.Session && p.named, path: p.text}
	if c.Identity != nil {
		k.caller = *c.Identity
		if (identity.Viewer|identity.Operator)&k.caller.Role != 0 && !p.named {
			k.caller.Name = ""
		}
	}
	return k
}

// NewServer returns a server whose streams end when life ends. Handler must be called before it
// serves, and Run must run.
func NewServer(life context.Context, options Options) *Server {
	return &Server{life: life, options: options, woken: make(chan struct{}, 1), pollers: map[key]*poller{},
		reached: map[string]bool{}}
}

// Handler returns the handler of the streams, which makes calls.
func (s *Server) Handler(calls Calls) http.Handler {
	s.calls = calls
	return http.HandlerFunc(s.serve)
}

// follower is a stream.
type follower struct {
	caller  string
	paths   []path
	pollers []*poller // of paths
	sent    cursor    // the digest of the last sent answer of each path
	changed chan struct{}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	paths, sent, err := s.parse(r)
	if err != nil {
		writeRefusal(w, err)
		return
	}
	c := access.CallerIn(r.Context())
	end, err := s.options.Admit(c.Job())
	if err != nil {
		rest.WriteError(w, err)
		return
	}
	f := &follower{paths: paths, sent: sent, changed: make(chan struct{}, 1)}
	if err := s.follow(f, c); err != nil {
		end(err)
		rest.WriteError(w, err)
		return
	}
	defer s.leave(f)
	out := stream.NewWriter(w, s.options.Patience, true)
	defer out.End()
	end(s.write(r.Context(), f, out))
}

// write writes answers until the stream ends. It returns the reason, or nil if the reader
// disconnected.
func (s *Server) write(ctx context.Context, f *follower, out *stream.Writer) error {
	if err := out.Begin(); err != nil {
		return stream.CauseOf(err)
	}
	alive := time.NewTicker(s.options.Heartbeat)
	defer alive.Stop()
	for {
		for i := range f.pollers {
			if err := s.writeAnswer(f, i, out); err != nil {
				return stream.CauseOf(err)
			}
		}
		select {
		case <-f.changed:
		case <-alive.C:
			if err := out.Alive(); err != nil {
				return stream.CauseOf(err)
			}
		case <-ctx.Done():
			return nil
		case <-s.life.Done():
			_ = out.Fail(stream.ErrStopping) // the stream ends in any case
			return stream.ErrStopping
		}
	}
}

// writeAnswer writes the latest answer of a path, unless its reader has that answer.
func (s *Server) writeAnswer(f *follower, i int, out *stream.Writer) error {
	a := s.hold(f.pollers[i])
	if a == nil {
		return nil
	}
	defer s.release(a)
	if a.digest == f.sent[i] {
		return nil
	}
	f.sent[i] = a.digest
	if err := out.Event(f.sent.String(), "answer", a.text); err != nil {
		return err
	}
	s.mu.Lock()
	s.sent++
	s.mu.Unlock()
	return nil
}

// follow adds a stream to the pollers of its paths, and starts those that do not run.
func (s *Server) follow(f *follower, c access.Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return stream.ErrStopping
	}
	missing := 0
	for _, p := range f.paths {
		if s.pollers[keyOf(c, p)] == nil {
			missing++
		}
	}
	f.caller = c.String()
	own := 0
	for _, p := range s.pollers {
		if p.callers[f.caller] > 0 {
			own++
		}
	}
	if missing > 0 && own+missing > maxShare {
		return fault.New(fault.Exhausted, fault.ReasonOverloaded, "this gateway watches %d paths of one caller, its maximum is %d",
			own, maxShare)
	}
	if len(s.pollers)+missing > maxPollers {
		// Unavailable: another gateway may accept the stream.
		return fault.New(fault.Unavailable, fault.ReasonOverloaded, "this gateway watches %d paths, its maximum is %d",
			len(s.pollers), maxPollers)
	}
	for _, at := range f.paths {
		k := keyOf(c, at)
		p := s.pollers[k]
		if p == nil {
			ctx, cancel := context.WithCancel(s.life)
			p = &poller{key: k, caller: c, path: at, cancel: cancel, wake: make(chan struct{}, 1),
				followers: map[*follower]struct{}{}, callers: map[string]int{}}
			s.pollers[k] = p
			s.running.Go(func() { s.poll(ctx, p) })
		}
		p.followers[f] = struct{}{}
		p.callers[f.caller]++
		f.pollers = append(f.pollers, p)
	}
	return nil
}

// leave removes a stream from its pollers, and ends those without other streams.
func (s *Server) leave(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range f.pollers {
		if p.callers[f.caller]--; p.callers[f.caller] == 0 {
			delete(p.callers, f.caller)
		}
		if delete(p.followers, f); len(p.followers) > 0 {
			continue
		}
		s.forget(p)
		s.releaseLocked(p.latest)
		p.latest = nil
		p.cancel()
	}
}

// forget removes a poller, so that a new stream starts another one.
func (s *Server) forget(p *poller) {
	if s.pollers[p.key] == p {
		delete(s.pollers, p.key)
	}
}

const prefix = "berth_gateway_"

// Metrics writes the metrics of the server. Package stream counts its streams.
func (s *Server) Metrics(f process.Scrape) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Gauge(prefix+"watched_paths", "paths that watches follow; streams of one caller, and of all viewers or operators, share a path", float64(len(s.pollers)))
	f.Gauge(prefix+"watch_bytes", "memory of the answers that watches keep", float64(s.memory))
	f.Counter(prefix+"watch_calls_total", "calls for watches", s.called)
	f.Counter(prefix+"watch_events_sent_total", "answers and errors sent to the readers of watches", s.sent)
}
