package internal

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"

	"berth.dev/services/assigner/dispatch"
)

// delivery records whether a call may have reached its agent.
type delivery struct{ begun atomic.Bool }

type deliveryKey struct{}

// trackDelivery returns a context whose calls set the delivery as soon as gRPC begins to write
// one of them to a connection. Before that, the agent has certainly not received the call: the
// connection could not be made, or the deadline passed while it was being made.
func trackDelivery(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}

// undelivered returns the outcome of a start request whose call failed, from the outcome by its
// error alone.
func (d *delivery) undelivered(outcome any) any {
	if u, unknown := outcome.(dispatch.Unknown); unknown && !d.begun.Load() {
		return dispatch.Undelivered(u)
	}
	return outcome
}

// deliveries is the handler that sets deliveries. gRPC calls it with OutHeader in the goroutine
// of the call, after it has given the headers to the connection and before the call continues.
type deliveries struct{}

func (deliveries) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (deliveries) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, begun := s.(*stats.OutHeader); !begun {
		return
	}
	if d, tracked := ctx.Value(deliveryKey{}).(*delivery); tracked {
		d.begun.Store(true)
	}
}

func (deliveries) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (deliveries) HandleConn(context.Context, stats.ConnStats) {}
