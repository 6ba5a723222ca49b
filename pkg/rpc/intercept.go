package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/pkg/fault"
)

// edge is what every call passes on its way in and out of a server.
type edge struct {
	log      *slog.Logger
	deadline time.Duration
}

// unary gives a call without a deadline one, and renders its error.
func (e edge) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	defer func() { err = e.render(ctx, info.FullMethod, recover(), err) }()
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.deadline)
		defer cancel()
	}
	return handler(ctx, req)
}

// stream renders the error a stream ended with. Streams have no deadline: they
// live until one side ends them.
func (e edge) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { err = e.render(ss.Context(), info.FullMethod, recover(), err) }()
	return handler(srv, ss)
}

// render turns what a handler ended with into a status. The cause of an
// internal error is for the log, not for the caller.
func (e edge) render(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		e.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		return ToStatus(fault.New(fault.Internal, fault.ReasonInternal, "%s failed inside Berth; its log says more", method))
	}
	if undecodable(err) {
		err = fault.New(fault.Invalid, fault.ReasonInvalid, "the request of %s cannot be decoded as protobuf", method)
	}
	if f := FromStatus(err); f != nil && f.Kind == fault.Internal {
		e.log.ErrorContext(ctx, "a call failed", "method", method, "error", err)
	}
	return ToStatus(err)
}

// undecodable reports whether gRPC could not decode a request, here or where it was
// forwarded to: it takes that for an error of the server.
func undecodable(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Internal && len(s.Proto().GetDetails()) == 0 &&
		(strings.HasPrefix(s.Message(), "grpc: error unmarshalling request") || strings.HasPrefix(s.Message(), "grpc: failed to unmarshal the received message"))
}
