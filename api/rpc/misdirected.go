package rpc

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Keys in the metadata of a gateway's error for a method that the called listener does
// not serve. MetaCalled is the option of the called listener. MetaServed is the option of
// the listener that serves the method.
const (
	MetaCalled = "called"
	MetaServed = "served"
)

// WarnMisdirected returns an option for clients of the gateways. It logs the first call
// to which a gateway answers UNIMPLEMENTED. In this case --gateways names the wrong
// listener, and the error names the right listener. The caller continues to repeat the
// call.
func WarnMisdirected(log *slog.Logger) grpc.DialOption {
	var once sync.Once
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, in, out, conn, opts...)
		if status.Code(err) == codes.Unimplemented {
			once.Do(func() {
				log.WarnContext(ctx, "--gateways names a listener that does not serve this process", "error",
					status.Convert(err).Message())
			})
		}
		return err
	})
}
