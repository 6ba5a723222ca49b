package stream

import (
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// WatchEvents streams events to a gRPC caller.
func (s *Server) WatchEvents(req *berthv1.WatchEventsRequest, out grpc.ServerStreamingServer[berthv1.Event]) error {
	f, err := s.open(out.Context(), req.GetJob(), req.GetSince())
	if err != nil {
		return err
	}
	err = s.send(f, out)
	f.end(f.why(err))
	return err
}

// send writes events out and answers why there are no more.
func (s *Server) send(f *follower, out grpc.ServerStreamingServer[berthv1.Event]) error {
	if err := out.SendHeader(nil); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		for event := range f.events {
			if err := out.Send(event); err != nil {
				written <- err
				return
			}
			s.counts.wrote(f, event)
		}
		written <- nil
	}()
	select {
	case err := <-written:
		return or(err, f)
	case <-f.ended:
	}
	// What is buffered still goes out, unless nobody reads it: then the writer
	// is stuck in Send, and only the end of the stream frees it.
	rest := s.options.Patience
	if fault.Is(f.err, fault.ReasonSlowReader) {
		rest = 0
	}
	select {
	case err := <-written:
		return or(err, f)
	case <-time.After(rest):
		return f.reason()
	}
}

// or is the error of a failed write, or else why no more events come.
func or(err error, f *follower) error {
	if err != nil {
		return err
	}
	return f.reason()
}
