package guard

import (
	"context"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"berth.dev/api/rpc"
	"berth.dev/pkg/transport"
)

// fieldMemory is the memory of a header field in addition to its text, in bytes: an entry in
// a map that has grown, and a slice with one value.
const fieldMemory = 200

// rejectedHeaders is the number of calls of one connection that may be rejected because of
// their headers before the connection is closed.
const rejectedHeaders = 16

var errHeaders = Overloaded("the headers of too many requests are in memory")

// takeHeaders allocates the memory of headers and of text bytes of other text. Small headers
// need no memory. takeHeaders returns nil if the memory is exhausted.
func (b *Budget) takeHeaders(text int, headers ...map[string][]string) *Hold {
	n := int64(text)
	for _, fields := range headers {
		for name, values := range fields {
			n += int64(len(name))
			for _, value := range values {
				n += fieldMemory + int64(len(value))
			}
		}
	}
	if n < small {
		n = 0
	}
	return b.Take(n)
}

// tap allocates the memory of the headers of a call. The memory is released when the call
// ends.
func (g *Guard) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	hold := g.headers.takeHeaders(len(info.FullMethodName), info.Header)
	if hold == nil {
		if p, ok := peer.FromContext(ctx); ok {
			if c, ok := p.AuthInfo.(caller); ok {
				c.conn.rejectHeaders()
			}
		}
		return ctx, rpc.ToStatus(errHeaders)
	}
	if hold.bytes > 0 {
		context.AfterFunc(ctx, hold.End)
	}
	return ctx, nil
}

// rejectHeaders counts a call that was rejected because of its headers. gRPC never cancels
// the context of such a call, so a timer runs until the call's deadline or the end of the
// connection. rejectHeaders therefore closes a connection with many such calls.
func (c *http2) rejectHeaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rejected++; c.rejected > rejectedHeaders {
		c.abort()
	}
}

// caller is the AuthInfo of a connection. From it, a call finds its connection. As a
// stats.Handler, caller cancels the contexts of the calls when their connection ends.
type caller struct {
	credentials.AuthInfo
	conn *http2
}

// Peer returns the other end of the connection.
func (c caller) Peer() transport.Peer {
	peer, _ := c.AuthInfo.(transport.Peer)
	return peer
}

type endKey struct{}

// TagConn implements stats.Handler.
func (caller) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, endKey{}, cancel)
}

// HandleConn implements stats.Handler.
func (caller) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		ctx.Value(endKey{}).(context.CancelFunc)()
	}
}

// TagRPC implements stats.Handler.
func (caller) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (caller) HandleRPC(context.Context, stats.RPCStats) {}
