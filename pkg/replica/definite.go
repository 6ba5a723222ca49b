package replica

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// The timeout of each attempt of a call, and the pauses between attempts.
const (
	attemptTimeout = 10 * time.Second
	firstPause     = 5 * time.Millisecond
	longestPause   = time.Second
)

// Definite repeats a call to another service until its outcome is definite: an answer, or
// an error that says that the call was not applied. Services may repeat all calls to each
// other.
//
// A message that is too large is a definite outcome, because a repeat would have the same
// size. If only the answer was too large, the view shows what was applied. An
// UNIMPLEMENTED error is not definite: the wrong listener of a gateway must not look like
// a peer that refuses the call. ctx is the context of the term. When it ends, the error
// is of kind Unavailable.
func Definite[A any](ctx context.Context, log *slog.Logger, name string, call func(ctx context.Context) (A, error)) (A,
	error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		answer, err := call(attempt)
		cancel()
		if err == nil {
			return answer, nil
		}
		f := rpc.FromStatus(err)
		open := f.Kind == fault.Unavailable || f.Kind == fault.Exhausted && f.Reason != fault.ReasonTooLarge ||
			status.Code(err) == codes.Unimplemented
		if !open || ctx.Err() != nil {
			return answer, f
		}
		log.DebugContext(ctx, "repeating a call whose outcome is open", "call", name, "error", err)
		select {
		case <-ctx.Done():
			return answer, f
		case <-time.After(pause):
		}
	}
}
