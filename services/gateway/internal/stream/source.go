// Package stream gives the events of a job to those who follow it, over gRPC,
// as lines of JSON and as server-sent events.
//
//	Source ──Open──▶ Reader ──Next──▶ follow ──▶ WatchEvents │ NDJSON │ SSE
//	(etcd)                            bounded buffer
//
// It promises that each event after the cursor given comes once and in order,
// or the stream ends with an error that says why not. Who does not read is cut
// off with SLOW_READER; the cursor of the last event seen resumes.
package stream

import (
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Source is where events come from.
type Source interface {
	// Open starts to read the events of a job that are after a cursor; the zero
	// cursor starts at the oldest kept. An error says why there is nothing to
	// read: reason EVENTS_COMPACTED when some of them are no longer kept.
	Open(ctx context.Context, job string, since Cursor) (Reader, error)
}

// Reader reads the events of one job.
type Reader interface {
	// Next waits for events. They are in order and each comes once. The error is
	// final.
	Next(ctx context.Context) ([]*berthv1.Event, error)
	// Pause frees what would be kept for a reader that falls behind: Next goes on
	// behind the last event that it gave.
	Pause()
	// Close frees what the reader holds.
	Close()
}

// The bounds of one stream.
const (
	// buffered is how many events wait for a reader that is busy.
	buffered = 1024
	// DefaultPatience is how long a full buffer waits for its reader.
	DefaultPatience = 10 * time.Second
	// DefaultHeartbeat is how often a quiet stream of server-sent events says
	// that it lives, so that proxies keep it.
	DefaultHeartbeat = 15 * time.Second
)

// Options of a server. Patience and Heartbeat are DefaultPatience and
// DefaultHeartbeat, but in tests.
type Options struct {
	Patience, Heartbeat time.Duration
	// MaxStreams is how many streams are open at a time at most.
	MaxStreams int
}

// Server serves streams from a source.
type Server struct {
	berthv1.UnimplementedEventsServer
	source Source
	// life ends all streams when it ends.
	life    context.Context
	options Options
	counts  counts
}

// NewServer makes a server whose streams end when life ends.
func NewServer(life context.Context, source Source, options Options) *Server {
	return &Server{source: source, life: life, options: options}
}

// open checks a request and starts to follow. What it answers has to be ended.
func (s *Server) open(ctx context.Context, job, since string) (*follower, error) {
	if !model.ValidName(job, 128) {
		return nil, fault.BadField(fault.ReasonBadName, "job", "%q is not a name", job)
	}
	cursor, err := ParseCursor(since)
	if err != nil {
		return nil, err
	}
	if !s.counts.enter(s.options.MaxStreams) {
		// Unavailable, for another gateway may have room.
		err := fault.New(fault.Unavailable, fault.ReasonOverloaded, "this gateway serves %d streams already, and no more", s.options.MaxStreams)
		s.counts.refused(err)
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(s.life, func() { cancel(errStopping) })
	reader, err := s.source.Open(ctx, job, cursor)
	if err != nil {
		release()
		cancel(nil)
		s.counts.leave(err)
		return nil, err
	}
	f := &follower{
		events: make(chan *berthv1.Event, buffered),
		ended:  make(chan struct{}),
		opened: time.Now(),
	}
	f.end = func(err error) {
		release()
		cancel(nil)
		s.counts.leave(err)
	}
	go f.run(ctx, reader, s.options.Patience)
	return f, nil
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "this gateway is stopping; another one answers")
