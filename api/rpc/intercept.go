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
	if err := uncompressed(ss.Context()); err != nil {
		return err
	}
	return handler(srv, decodingStream{ss, info.FullMethod})
}

// render turns what a handler ended with into a status. The cause of an
// internal error is for the log, not for the caller.
func (e edge) render(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		e.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		return ToStatus(fault.New(fault.Internal, fault.ReasonInternal, "%s failed inside Berth; its log says more", method))
	}
	if f := FromStatus(err); f != nil && f.Kind == fault.Internal {
		e.log.ErrorContext(ctx, "a call failed", "method", method, "error", err)
	}
	return ToStatus(err)
}

// maxHealthName bounds the name in a health check, bytes: a stream keeps the name
// that it watches for as long as it is open.
const maxHealthName = 128

var (
	errLongName   = errors.New("the name in a health check is too long")
	errManyFields = errors.New("the request has too many fields")
)

// decoded refuses a message that the codec could not or would not decode.
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
	return ToStatus(fault.New(fault.Invalid, fault.ReasonInvalid, "the request of %s cannot be decoded as protobuf", method))
}

// decodingStream is a stream whose messages the edge refuses, not gRPC.
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

// malformed returns a caller's mistake for what gRPC calls an internal error: a message
// on the wire that breaks its protocol. gRPC has answered it already; the log must not
// call it a failure of the server.
func malformed(err error) error {
	if s, is := status.FromError(err); is && s.Code() == codes.Internal {
		return ToStatus(fault.New(fault.Invalid, fault.ReasonInvalid, "the request is malformed: %s", strings.TrimPrefix(s.Message(), "grpc: ")))
	}
	return err
}

// Recover calls a function that handles what a peer sends. If it panics, Recover
// returns an internal error, whose cause has the panic and its stack.
func Recover(fn func() error) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fault.New(fault.Internal, fault.ReasonInternal, "Berth failed to handle what a peer sent; its log says more").
				Because(fmt.Errorf("panic: %v\n%s", what, debug.Stack()))
		}
	}()
	return fn()
}
