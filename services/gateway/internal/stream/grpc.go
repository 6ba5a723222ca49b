package stream

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// WatchEvents streams events to a gRPC caller.
func (s *Server) WatchEvents(req *berthv1.WatchEventsRequest, out grpc.ServerStreamingServer[berthv1.Event]) error {
	f, err := s.open(out.Context(), req.GetJob(), req.GetSince(), req.GetStored())
	if err != nil {
		return err
	}
	err = s.send(f, out, rpc.StoredHeader(req.GetStored()))
	f.end(f.cause(err))
	return err
}

// send writes events, and returns the error that ends the stream.
func (s *Server) send(f *follower, out grpc.ServerStreamingServer[berthv1.Event], header metadata.MD) error {
	if err := out.SendHeader(header); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		for event := range f.events {
			if err := out.Send(event); err != nil {
				written <- err
				return
			}
			s.metrics.sentEvent(f, event)
		}
		written <- f.reason()
	}()
	select {
	case err := <-written:
		return err
	case <-f.ended:
	}
	// The writer still sends the events in the buffer. If the reader does not read, the
	// writer is blocked in Send, and only the end of the stream unblocks it.
	rest := s.options.Patience
	if fault.Is(f.err, fault.ReasonSlowReader) {
		rest = 0
	}
	select {
	case err := <-written:
		return err
	case <-time.After(rest):
		return f.reason()
	}
}
