package rpc

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Keys of the metadata of the error with which a gateway refuses a method that it
// does not serve on the listener that was called: the option of that listener, and
// of the one that serves the method.
const (
	MetaCalled = "called"
	MetaServed = "served"
)

// WarnMisdirected is for a client of the gateways. It logs, once, a call that they
// answer with UNIMPLEMENTED: --gateways names the wrong listener of them then, and
// the error says which one serves the call. The caller goes on repeating it.
func WarnMisdirected(log *slog.Logger) grpc.DialOption {
	var once sync.Once
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, in, out, conn, opts...)
		if status.Code(err) == codes.Unimplemented {
			once.Do(func() {
				log.WarnContext(ctx, "--gateways names a listener that does not serve this process", "error", status.Convert(err).Message())
			})
		}
		return err
	})
}
