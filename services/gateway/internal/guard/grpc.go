package guard

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// callsPerConnection relates the calls in progress on all connections of a
// listener to the connections it may have: each costs some kilobytes, and most
// connections have one or two.
const callsPerConnection = 2

// ServerOptions bound what a gRPC server holds, which uses TLS if security is not
// nil.
func (g *Guard) ServerOptions(security *tls.Config) []grpc.ServerOption {
	plain := insecure.NewCredentials()
	if security != nil {
		plain = credentials.NewTLS(security)
	}
	// What arrives on a stream beyond the message that is being read is held in
	// its window, which is the smallest that there is.
	const window = 64<<10 - 1
	return []grpc.ServerOption{
		grpc.Creds(&watched{plain, g}),
		grpc.MaxConcurrentStreams(uint32(g.limits.Streams)),
		grpc.MaxHeaderListSize(HeaderLimit),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(1 << 20),
		// Each connection keeps its buffer to read with.
		grpc.ReadBufferSize(4 << 10),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: 15 * time.Second, Timeout: 10 * time.Second}),
		grpc.InTapHandle(g.tap),
		grpc.StatsHandler(caller{}),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := g.enter(); err != nil {
				return nil, err
			}
			defer g.leave()
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(srv any, in grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := g.enter(); err != nil {
				return err
			}
			defer g.leave()
			held := &stream{ServerStream: in, budget: g.budget}
			defer held.end()
			return handler(srv, held)
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

// stream holds the memory of the message that was received last, until the next one
// or the end of the call.
type stream struct {
	grpc.ServerStream
	budget *Budget

	mu    sync.Mutex
	hold  *Hold
	ended bool
}

// small is the size of a message, or of headers, that takes no more than the stream
// that it came on.
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

// keep holds h in place of what was held before.
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

// end is called when the handler has returned; a reader that it has left behind
// may still receive.
func (s *stream) end() {
	s.keep(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// unreadable tells a caller that its message is too large as Berth tells that
// elsewhere.
func unreadable(err error) error {
	if s := status.Convert(err); s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max") {
		return fault.New(fault.Invalid, fault.ReasonTooLarge, "the request is too large: %s", strings.TrimPrefix(s.Message(), "grpc: "))
	}
	return err
}
