// Package stream serves the events of a job over gRPC, as lines of JSON and as server-sent
// events.
//
//	Source ──Open──▶ Reader ──Next──▶ follower ──▶ WatchEvents │ NDJSON │ SSE
//	(etcd)                            bounded buffer
//
// It promises that each event after the given cursor is delivered once and in order, or
// that the stream ends with an error that names the reason. A stream whose reader is too
// slow ends with SLOW_READER; it can be resumed with the cursor of the last event seen.
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
	// Open starts to read the events of a job after a cursor; the zero cursor starts at
	// the oldest stored event. If some of the events are no longer stored, the error has
	// the reason EVENTS_COMPACTED.
	Open(ctx context.Context, job string, since Cursor) (Reader, error)
}

// Reader reads the events of one job.
type Reader interface {
	// Next waits for events. It returns each event once and in order. Its error is final.
	Next(ctx context.Context) ([]*berthv1.Event, error)
	// Pause releases the memory of events that Next has not returned. The following Next
	// continues after the last event that it returned.
	Pause()
	// Close releases the resources of the reader.
	Close()
}

// Limits of one stream.
const (
	// buffered is the number of events that wait for a slow reader.
	buffered = 1024
	// DefaultPatience is how long the buffer may stay full.
	DefaultPatience = 10 * time.Second
	// DefaultHeartbeat is the interval of comments in a quiet stream of server-sent
	// events, which keep proxies from closing it.
	DefaultHeartbeat = 15 * time.Second
)

// Options are the options of a server. Only tests set a Patience and a Heartbeat other than
// the defaults.
type Options struct {
	Patience, Heartbeat time.Duration
	// MaxStreams is the maximum number of open streams.
	MaxStreams int
}

// Server serves streams from a source.
type Server struct {
	berthv1.UnimplementedEventsServer
	source Source
	// life ends all streams when it ends.
	life    context.Context
	options Options
	metrics metrics
}

// NewServer makes a server whose streams end when life ends.
func NewServer(life context.Context, source Source, options Options) *Server {
	return &Server{source: source, life: life, options: options}
}

// open checks a request and starts to follow the job. The caller must call the follower's
// end.
func (s *Server) open(ctx context.Context, job, since string) (*follower, error) {
	if !model.ValidName(job, 128) {
		return nil, fault.BadField(fault.ReasonBadName, "job", "%q is not a name", job)
	}
	cursor, err := ParseCursor(since)
	if err != nil {
		return nil, err
	}
	if !s.metrics.opened(s.options.MaxStreams) {
		// Unavailable: another gateway may accept the stream.
		err := fault.New(fault.Unavailable, fault.ReasonOverloaded, "this gateway has %d open streams, its maximum",
			s.options.MaxStreams)
		s.metrics.rejected(err)
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.life, func() { cancel(errStopping) })
	f := &follower{
		events: make(chan *berthv1.Event, buffered),
		ended:  make(chan struct{}),
		opened: time.Now(),
	}
	f.end = func(cause error) {
		release()
		cancel(nil)
		s.metrics.closed(cause)
	}
	reader, err := s.source.Open(ctx, job, cursor)
	if err != nil {
		f.end(err)
		return nil, err
	}
	go f.run(ctx, reader, s.options.Patience)
	return f, nil
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "this gateway is stopping; another one answers")
