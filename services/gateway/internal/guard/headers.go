package guard

import (
	"context"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"

	"berth.dev/api/rpc"
)

// fieldMemory is what a header field takes in addition to its text: an entry in a
// map that has grown, and a slice with one value.
const fieldMemory = 200

// refusedHeaders is how many calls of one connection are refused for their headers
// before it is closed.
const refusedHeaders = 16

var errHeaders = Overloaded("the headers of too many requests are held")

// takeHeaders holds the memory of headers, and of so many bytes of other text. Small
// ones take none. It returns nil if there is no room.
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

// tap holds the memory of the headers of a call until the call ends.
func (g *Guard) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	hold := g.headers.takeHeaders(len(info.FullMethodName), info.Header)
	if hold == nil {
		if p, ok := peer.FromContext(ctx); ok {
			if c, ok := p.AuthInfo.(caller); ok {
				c.conn.refuseHeaders()
			}
		}
		return ctx, rpc.ToStatus(errHeaders)
	}
	if hold.bytes > 0 {
		context.AfterFunc(ctx, hold.End)
	}
	return ctx, nil
}

// refuseHeaders counts a call whose headers had no room. gRPC never ends the context
// of such a call, whose timer runs until its deadline or the end of the connection: a
// connection with many is closed.
func (c *http2) refuseHeaders() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused++; c.refused > refusedHeaders {
		c.abort()
	}
}

// caller is what the calls of a connection know of it. As a stats.Handler it ends their
// contexts with the connection.
type caller struct {
	credentials.AuthInfo
	conn *http2
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
