package router

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
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
	begun := time.Now()
	ctx, cancel := r.bound(ctx)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		var reached peer.Peer
		err := to.conn.Invoke(ctx, method, in, out, append(opts, grpc.Peer(&reached))...)
		switch {
		case err == nil:
			return nil
		case status.Code(err) == codes.DeadlineExceeded && reached.Addr == nil:
			return to.late(begun)
		case !again(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return to.late(begun)
			}
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// shortest is how long a call waits for a leader before its absence is to blame.
const shortest = 100 * time.Millisecond

// late is the error of a call whose deadline has passed without an answer.
func (to route) late(begun time.Time) error {
	if waited := time.Since(begun); waited < shortest {
		return status.Errorf(codes.DeadlineExceeded, "the deadline of the call passed after %v, before %s answered: give it more time", waited, to.service)
	}
	return to.noLeader()
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

// longest bounds the deadline of a call. The registry remembers the ID of a request for
// model.KeepTerminal after what came of it has ended: no copy of a call may be applied
// later than that, or it would be taken for a new request.
const longest = model.KeepTerminal / 2

// bound gives a call the router's deadline when it has none. The caller's own
// is moved forward a little, so that the answer which says why is there before
// the caller gives up.
func (r *Router) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := r.deadline
	if deadline, has := ctx.Deadline(); has {
		left := time.Until(deadline)
		wait = left - min(200*time.Millisecond, left/5)
	}
	return context.WithTimeout(ctx, min(wait, longest))
}
