package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
)

// edge has the interceptors of a server.
type edge struct {
	log      *slog.Logger
	deadline time.Duration
}

// unary sets a deadline for a call without a deadline, and converts the error of the call
// to a status.
func (e edge) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any,
	err error) {
	defer func() { err = e.render(ctx, info.FullMethod, recover(), err) }()
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.deadline)
		defer cancel()
	}
	return handler(ctx, req)
}

// stream converts the error of a stream to a status. Streams have no deadline: they last
// until one side ends them.
func (e edge) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	defer func() { err = e.render(ss.Context(), info.FullMethod, recover(), err) }()
	if err := uncompressed(ss.Context()); err != nil {
		return err
	}
	return handler(srv, decodingStream{ss, info.FullMethod})
}

// render converts the error of a handler to a status. It logs the cause of an internal
// error and does not send the cause to the caller.
func (e edge) render(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		e.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", fmt.Sprint(panicked), "stack",
			string(debug.Stack()))
		return ToStatus(fault.New(fault.Internal, fault.ReasonInternal, "%s failed inside Berth; see its log", method))
	}
	if f := FromStatus(err); f != nil && f.Kind == fault.Internal {
		e.log.ErrorContext(ctx, "a call failed", "method", method, "error", err)
	}
	return ToStatus(err)
}

// maxHealthName is the maximum length of the name in a health check, in bytes. Without a
// limit, open streams could use much memory for the names that they watch.
const maxHealthName = 128

var (
	errLongName   = errors.New("the name in a health check is too long")
	errManyFields = errors.New("the request has too many fields")
)

// decoded returns an error if the codec did not decode the message.
func (d *decoding) decoded(method string) error {
	if d.err == nil {
		return nil
	}
	if errors.Is(d.err, errLongName) {
		return ToStatus(fault.BadField(fault.ReasonInvalid, "service", "must be at most %d bytes", maxHealthName))
	}
	if errors.Is(d.err, errManyFields) {
		return ToStatus(fault.New(fault.Invalid, fault.ReasonTooLarge, "the request of %s has too many fields", method))
	}
	return ToStatus(fault.New(fault.Invalid, fault.ReasonInvalid, "the request of %s cannot be decoded as protobuf",
		method))
}

// decodingStream is a stream that returns the errors of decoding itself instead of
// leaving them to gRPC.
type decodingStream struct {
	grpc.ServerStream
	method string
}

func (s decodingStream) RecvMsg(m any) error {
	d := decoding{message: m}
	if err := s.ServerStream.RecvMsg(&d); err != nil {
		return malformed(err)
	}
	return d.decoded(s.method)
}

// malformed converts gRPC's internal error for a message that violates the protocol to an
// error of kind Invalid. gRPC has already answered the call, but the log must not report
// the message as a failure of the server.
func malformed(err error) error {
	if s, is := status.FromError(err); is && s.Code() == codes.Internal {
		return ToStatus(fault.New(fault.Invalid, fault.ReasonInvalid, "the request is malformed: %s",
			strings.TrimPrefix(s.Message(), "grpc: ")))
	}
	return err
}

// Recover calls fn, which processes input from a peer. If fn panics, Recover returns an
// internal error whose cause contains the panic and its stack.
func Recover(fn func() error) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fault.New(fault.Internal, fault.ReasonInternal, "Berth failed to process a message of a peer; see its log").
				Because(fmt.Errorf("panic: %v\n%s", what, debug.Stack()))
		}
	}()
	return fn()
}
