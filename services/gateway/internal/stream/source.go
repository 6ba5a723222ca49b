// Package stream delivers each event of a job after the given cursor once and in order, or
// ends the stream with an error that names the reason. It serves the events over gRPC, as
// lines of JSON (NDJSON) and as server-sent events (SSE).
//
//	Source ──Open──▶ Reader ──Next──▶ follower ──▶ WatchEvents │ NDJSON │ SSE
//	(etcd)                            bounded buffer
//
// A stream whose reader is too slow ends with SLOW_READER. The reader can resume with the
// cursor of the last event that it has seen.
package stream

import (
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Source is the origin of events.
type Source interface {
	// Open starts to read the events of a job after a cursor. The zero cursor starts at
	// the oldest stored event. If events after the cursor may have been deleted, the error
	// has the reason EVENTS_COMPACTED. If stored is set, the reader ends with io.EOF after the
	// events that are stored.
	Open(ctx context.Context, job string, since Cursor, stored bool) (Reader, error)
}

// Reader reads the events of one job.
type Reader interface {
	// Next waits for events. It returns each event once and in order. Its error is final.
	Next(ctx context.Context) ([]*berthv1.Event, error)
	// Pause releases the memory of events that Next has not returned. The next call of
	// Next continues after the last event that Next has returned.
	Pause()
	// Close releases the resources of the reader.
	Close()
}

// Limits of one stream.
const (
	// buffered is the maximum number of events that wait for a slow reader.
	buffered = 1024
	// DefaultPatience is how long the buffer may stay full.
	DefaultPatience = 10 * time.Second
	// DefaultHeartbeat is the interval of comments in a quiet stream of server-sent
	// events, which keep proxies from closing it.
	DefaultHeartbeat = 15 * time.Second
)

// Options are the options of a server. Only tests use a Patience and a Heartbeat that differ
// from the defaults.
type Options struct {
	Patience, Heartbeat time.Duration
	// MaxStreams is the maximum number of open streams.
	MaxStreams int
	// Tenants, if set, returns the tenants that limit the open streams of their jobs: the
	// same pointer until they change.
	Tenants func() *model.Tenants
}

// Server serves streams from a source.
type Server struct {
	berthv1.UnimplementedEventsServer
	source Source
	// When life ends, all streams end.
	life    context.Context
	options Options
	metrics metrics
}

// NewServer returns a server whose streams end when life ends.
func NewServer(life context.Context, source Source, options Options) *Server {
	if options.Tenants == nil {
		options.Tenants = func() *model.Tenants { return nil }
	}
	return &Server{source: source, life: life, options: options, metrics: metrics{ofJob: map[string]int{}}}
}

// open checks a request and starts to follow the job. The caller must call end of the
// returned follower.
func (s *Server) open(ctx context.Context, job, since string, stored bool) (*follower, error) {
	if !model.ValidName(job, 128) {
		return nil, fault.BadField(fault.ReasonBadName, "job", "%q is not a name", job)
	}
	cursor, err := ParseCursor(since)
	if err != nil {
		return nil, err
	}
	end, err := s.Admit(job)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.life, func() { cancel(ErrStopping) })
	f := &follower{
		events: make(chan *berthv1.Event, buffered),
		ended:  make(chan struct{}),
		opened: time.Now(),
	}
	f.end = func(cause error) {
		release()
		cancel(nil)
		end(cause)
	}
	reader, err := s.source.Open(ctx, job, cursor, stored)
	if err != nil {
		f.end(err)
		return nil, err
	}
	go f.run(ctx, reader, s.options.Patience)
	return f, nil
}

// Admit counts a stream of a job, or a stream of the job service with this name that package
// watch serves: both have the same limits together. The caller must call end with the reason
// for which the stream ended, nil if the reader disconnected.
func (s *Server) Admit(job string) (end func(cause error), err error) {
	if err := s.metrics.opened(job, s.options.MaxStreams, s.options.Tenants()); err != nil {
		s.metrics.rejected(err)
		return nil, err
	}
	return func(cause error) { s.metrics.closed(job, cause) }, nil
}

// OpenStreams returns the number of open streams by tenant.
func (s *Server) OpenStreams() map[string]int { return s.metrics.byTenant(s.options.Tenants()) }

// ErrStopping is the reason of streams that end with the gateway.
var ErrStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable,
	"this gateway is stopping; another gateway answers")
