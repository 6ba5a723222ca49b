package guard

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/transport"
)

// callsPerConnection limits the calls in progress on a listener: at most this number for each
// allowed connection. A call takes some kilobytes, and most connections have one or two
// calls.
const callsPerConnection = 2

// ServerOptions returns the options that bound the memory of a gRPC server.
func (g *Guard) ServerOptions() []grpc.ServerOption {
	// gRPC buffers up to window bytes of a stream after the current message. This is the
	// smallest possible window.
	const window = 64<<10 - 1
	return []grpc.ServerOption{
		grpc.Creds(&watched{transport.Credentials(), g}),
		grpc.MaxConcurrentStreams(uint32(g.limits.Streams)),
		grpc.MaxHeaderListSize(HeaderLimit),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(1 << 20),
		// Each connection keeps its read buffer, so the buffer is small.
		grpc.ReadBufferSize(4 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: 15 * time.Second,
			Timeout: 10 * time.Second}),
		grpc.InTapHandle(g.tap),
		grpc.StatsHandler(caller{}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (any, error) {
			if err := g.enter(); err != nil {
				return nil, err
			}
			defer g.leave()
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(srv any, in grpc.ServerStream, _ *grpc.StreamServerInfo,
			handler grpc.StreamHandler) error {
			if err := g.enter(); err != nil {
				return err
			}
			defer g.leave()
			s := &stream{ServerStream: in, budget: g.budget}
			defer s.end()
			return handler(srv, s)
		}),
	}
}

func (g *Guard) enter() error {
	if g.calls.Add(1) > int64(callsPerConnection*g.limits.Connections) {
		g.calls.Add(-1)
		return Overloaded("too many calls are in progress")
	}
	return nil
}

func (g *Guard) leave() { g.calls.Add(-1) }

// stream allocates the memory of the last received message. It releases the memory when the
// next message is read or the call ends.
type stream struct {
	grpc.ServerStream
	budget *Budget

	mu    sync.Mutex
	hold  *Hold
	ended bool
}

// small is the size in bytes below which a message or headers count as part of their
// stream.
const small = 4 << 10

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	s.keep(nil)
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return unreadable(err)
	}
	size := 0
	switch m := m.(type) {
	case *rpc.Frame:
		size = len(m.Bytes)
	case proto.Message:
		size = proto.Size(m)
	}
	if size < small {
		return nil
	}
	hold := s.budget.Take(int64(size))
	if hold == nil {
		return Overloaded("too many requests are in flight")
	}
	s.keep(hold)
	return nil
}

// keep releases the memory of the last message and holds the memory in h instead, which may
// be nil.
func (s *stream) keep(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		s.hold.End()
	}
	s.hold = h
	if s.ended && h != nil {
		h.End()
	}
}

// end releases the memory of the stream. It must be called after the handler has returned. A
// goroutine of the handler may still receive a message.
func (s *stream) end() {
	s.keep(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// unreadable returns Berth's error for gRPC's error about a message that is too large. It
// returns any other error unchanged.
func unreadable(err error) error {
	if s := status.Convert(err); s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max") {
		return fault.New(fault.Invalid, fault.ReasonTooLarge, "the request is too large: %s",
			strings.TrimPrefix(s.Message(), "grpc: "))
	}
	return err
}
