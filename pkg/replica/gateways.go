package replica

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/store"
)

const (
	// gatewaysEvery is the time between two checks of the gateways.
	gatewaysEvery = 2 * time.Second
	// gatewaysLost is how long no gateway may answer a replica until the replica lacks them. All
	// gateways may restart together, and may start after the replica.
	gatewaysLost = 5 * time.Second
	// gatewayTimeout is the time in which a gateway must answer.
	gatewayTimeout = time.Second
)

// gateways knows whether a gateway answers a replica, and why none does.
type gateways struct {
	check func(ctx context.Context) error // says why no gateway answers
	cause atomic.Pointer[string]          // nil if a gateway answers
}

// lacks returns why no gateway answers, or "".
func (g *gateways) lacks() string {
	if cause := g.cause.Load(); cause != nil {
		return *cause
	}
	return ""
}

// watch checks whether a gateway answers until ctx ends. It logs when that or the reason changes.
func (g *gateways) watch(ctx context.Context, log *slog.Logger) error {
	for answered := time.Now(); ; {
		err := g.check(ctx)
		if ctx.Err() != nil {
			return nil
		}
		was := g.lacks()
		switch {
		case err == nil:
			answered = time.Now()
			if g.cause.Swap(nil) != nil {
				log.Info("a gateway answers")
			}
		case time.Since(answered) >= gatewaysLost && err.Error() != was:
			g.cause.Store(new(err.Error()))
			log.Warn("cannot call other services", "reason", err)
		}
		if store.Sleep(ctx, gatewaysEvery) != nil {
			return nil
		}
	}
}

// checkGateways returns nil if a gateway answers on a listener for services, and otherwise an error
// with the addresses that do not answer and the causes.
func (r *Replica) checkGateways(ctx context.Context) error {
	if ask(ctx, r.Gateway) == nil {
		return nil
	}
	unreached := make([]rpc.Unreached, len(r.Config.Gateways))
	var answers atomic.Bool
	var wait sync.WaitGroup
	for i, address := range r.Config.Gateways {
		wait.Go(func() {
			unreached[i] = rpc.Unreached{Address: address, Cause: "it does not answer"}
			conn, err := rpc.Dial([]string{address}, rpc.DialOptions{TLS: r.Peers(identity.Gateway), FailFast: true})
			if err != nil {
				return
			}
			defer conn.Close()
			if err := ask(ctx, conn); err != nil {
				unreached[i].Cause = rpc.Cause(err)
			} else {
				answers.Store(true)
			}
		})
	}
	wait.Wait()
	if answers.Load() {
		return nil
	}
	return fault.New(fault.Unavailable, "", "no gateway answers: %s", rpc.Join(unreached))
}

// ask calls the health check of a gateway for a service that only its listener for services serves.
func ask(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, gatewayTimeout)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{
		Service: controlv1.Inventory_ServiceDesc.ServiceName})
	if status.Code(err) == codes.NotFound {
		return status.Error(codes.NotFound, "it is not an address of --internal-listen")
	}
	return err
}
