package router

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/rpc"
)

// pipe forwards a stream in both directions until one end closes it. What the
// other end says last, its trailer included, is passed on.
func (r *Router) pipe(ctx context.Context, to route, method string, in grpc.ServerStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.life, func() { cancel(errStopping) })()

	out, err := to.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, codec)
	if err != nil {
		if status.Code(err) == codes.DeadlineExceeded {
			return to.noLeader()
		}
		return ended(ctx, err)
	}
	go func() {
		if err := rpc.Recover(func() error { return to.upstream(in, out) }); err != nil {
			cancel(err)
		}
	}()
	if header, err := out.Header(); err == nil {
		if err := in.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		var frame rpc.Frame
		if err := out.RecvMsg(&frame); err != nil {
			in.SetTrailer(passed(out.Trailer()))
			if err == io.EOF {
				return nil
			}
			return ended(ctx, err)
		}
		if err := in.SendMsg(&frame); err != nil {
			return err
		}
	}
}

// upstream forwards what the caller sends. It returns at the latest when the
// handler of the stream has returned, since that ends RecvMsg.
func (to route) upstream(in grpc.ServerStream, out grpc.ClientStream) error {
	for {
		var frame rpc.Frame
		switch err := in.RecvMsg(&frame); {
		case err == io.EOF:
			return out.CloseSend()
		case err != nil:
			return err
		}
		if err := to.admit(frame); err != nil {
			return err
		}
		if err := out.SendMsg(&frame); err != nil {
			// Why the other end closed the stream is for RecvMsg to tell.
			return nil
		}
	}
}

var errStopping = fault.New(fault.Unavailable, fault.ReasonUnavailable, "this gateway is stopping; another one answers")

// ended is why a stream ended: our own reason for cancelling it, if we did.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return err
}
