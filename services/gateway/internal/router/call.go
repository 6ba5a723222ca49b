package router

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/rpc"
)

// Pauses between the attempts of one call. The first is short because the
// successor of a leader that died is there within milliseconds.
const (
	firstPause = 2 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// call sends a unary call until its answer is definite or its deadline is
// over. While there is no leader it waits inside Invoke.
func (r *Router) call(ctx context.Context, to route, method string, in, out any, opts ...grpc.CallOption) error {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		var reached peer.Peer
		err := to.conn.Invoke(ctx, method, in, out, append(opts, grpc.Peer(&reached))...)
		switch {
		case err == nil:
			return nil
		case status.Code(err) == codes.DeadlineExceeded && reached.Addr == nil:
			return to.noLeader()
		case !again(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return to.noLeader()
			}
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// again says whether sending the call once more may give another answer soon:
// the connection broke, or the replica asked does not lead. Unavailable with a
// reason of its own, such as REGISTRY_NOT_READY, is an answer for the caller.
func again(err error) bool {
	f := rpc.FromStatus(err)
	if f.Reason == fault.ReasonNotLeader {
		return true
	}
	return status.Code(err) == codes.Unavailable && f.Reason == fault.ReasonUnavailable
}

// bound gives a call the router's deadline when it has none. The caller's own
// is moved forward a little, so that the answer which says why is there before
// the caller gives up.
func (r *Router) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return context.WithTimeout(ctx, r.deadline)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(200*time.Millisecond, time.Until(deadline)/5)))
}
