package rpc

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
)

// A gateway may be served below the path of a URL, such as /berth. The names of methods are
// paths, so the base path precedes them: /berth/berth.v1.Leaders/ListLeaders. A proxy may
// remove the base path or keep it.

// CheckBase returns what is wrong with a base path, or "". A valid one begins with a slash,
// does not end with one, and needs no escapes.
func CheckBase(base string) (problem string) {
	segments := strings.Split(base, "/")
	if segments[0] != "" || len(segments) < 2 {
		return "must be a path such as /berth"
	}
	for _, segment := range segments[1:] {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", r)
		}) {
			return "must be a path such as /berth, with letters, digits and -._~"
		}
	}
	first := segments[1]
	if slices.Contains(reservedBases, first) || strings.HasPrefix(first, "berth.") || strings.HasPrefix(first, "grpc.") {
		return "must not begin with /" + first + ", which is a path of the gateway itself"
	}
	return ""
}

// reservedBases are the first parts of the paths that a gateway serves. With such a base path, a
// path without it could be mistaken for one with it.
var reservedBases = []string{"v1", "session", "openapi.json", "assets", "healthz", "readyz", "leaderz", "metrics",
	"debug", "queues", "jobs", "executors", "usage", "tenants", "audit"}

// below returns the options with which a client calls methods below a base path.
func below(base string) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(ctx, base+method, in, out, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return stream(ctx, desc, conn, base+method, opts...)
		}),
	}
}

// atBase is a stream interceptor for a server with a base path. The interceptors and handlers
// after it see the method without the base path.
func atBase(base string) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		method, found := strings.CutPrefix(info.FullMethod, base+"/")
		if !found {
			return handler(srv, ss)
		}
		info.FullMethod = "/" + method // gRPC makes one info for each call
		transport := grpc.ServerTransportStreamFromContext(ss.Context())
		ctx := grpc.NewContextWithServerTransportStream(ss.Context(), renamedStream{transport, info.FullMethod})
		return handler(srv, renamed{ss, ctx})
	}
}

type renamedStream struct {
	grpc.ServerTransportStream
	method string
}

func (s renamedStream) Method() string { return s.method }

// RecvCompress returns the encoding of the call, which uncompressed checks.
func (s renamedStream) RecvCompress() string {
	if call, ok := s.ServerTransportStream.(interface{ RecvCompress() string }); ok {
		return call.RecvCompress()
	}
	return "unknown"
}

type renamed struct {
	grpc.ServerStream
	ctx context.Context
}

func (s renamed) Context() context.Context { return s.ctx }
