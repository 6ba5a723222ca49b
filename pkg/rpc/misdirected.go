package rpc

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
