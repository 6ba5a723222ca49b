package router

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/model"
)

// The pauses between the attempts of a call. The first pause is short, because a new leader
// may serve within milliseconds after its predecessor died.
const (
	firstPause = 2 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// call sends a unary call until the answer is definite or the deadline of the call passes.
// While the service has no leader, call waits in Invoke.
func (r *Router) call(ctx context.Context, to route, method string, in, out any, opts ...grpc.CallOption) error {
	begun := time.Now()
	ctx, cancel := r.bound(ctx)
	defer cancel()
	if to.waits {
		defer context.AfterFunc(r.life, cancel)()
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		var reached peer.Peer
		err := to.conn.Invoke(ctx, method, in, out, append(opts, grpc.Peer(&reached))...)
		switch {
		case err == nil:
			return nil
		case to.waits && r.life.Err() != nil:
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "the gateway is stopping")
		case status.Code(err) == codes.DeadlineExceeded && reached.Addr == nil:
			return r.late(to, begun)
		case !retryable(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return r.late(to, begun)
			}
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// passOn returns the context of a call to a service, with the metadata of the call to the
// gateway. It passes on the caller that the gateway has identified, and none of the proofs
// and claims of the caller itself. passOn changes md.
func passOn(ctx context.Context, md metadata.MD) context.Context {
	access.DeleteProofs(md)
	if uri := access.CallerIn(ctx).Passed(); uri != "" {
		if md == nil {
			md = metadata.MD{}
		}
		md.Set(access.MetaCaller, uri)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// shortest is the minimum time that a call must have waited before its error may state that
// the service has no leader.
const shortest = 100 * time.Millisecond

// late returns the error of a call whose deadline passed without an answer.
func (r *Router) late(to route, begun time.Time) error {
	if waited := time.Since(begun); waited < shortest {
		return status.Errorf(codes.DeadlineExceeded,
			"the deadline of the call passed after %v, before %s answered: give it more time", waited, to.service)
	}
	return r.reach(to.service).Fault(to.service)
}

// retryable reports whether another attempt may succeed soon, because the connection broke
// or the replica does not lead. Unavailable with another reason, such as
// REGISTRY_NOT_READY, is an answer for the caller.
func retryable(err error) bool {
	f := rpc.FromStatus(err)
	if f.Reason == fault.ReasonNotLeader {
		return true
	}
	return status.Code(err) == codes.Unavailable && f.Reason == fault.ReasonUnavailable
}

// longest is the maximum deadline of a call. The registry remembers a request ID for
// model.KeepTerminal after the result of the request has ended. If a copy of the call were
// applied after that time, it would count as a new request.
const longest = model.KeepTerminal / 2

// bound returns the context of a call. If the caller has no deadline, bound sets the
// router's deadline. Otherwise it shortens the caller's deadline a little, so that the error
// with the reason arrives before the caller gives up. No deadline exceeds longest.
func (r *Router) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := r.deadline
	if deadline, has := ctx.Deadline(); has {
		left := time.Until(deadline)
		wait = left - min(200*time.Millisecond, left/5)
	}
	return context.WithTimeout(ctx, min(wait, longest))
}
