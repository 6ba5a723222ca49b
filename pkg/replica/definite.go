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

// The limits of a repeated call.
const (
	attemptTimeout = 10 * time.Second
	firstPause     = 5 * time.Millisecond
	longestPause   = time.Second
)

// Definite repeats a call to another service until its outcome is definite: an answer, or
// an error that says that the call was not applied. All calls between services may be
// repeated.
//
// A message that is too large is a definite outcome, as a repeat has the same size. If
// only the answer was too large, the view shows what was applied. A call that is not
// served is not definite: a gateway that is called at the wrong listener must not look
// like a peer that refuses. When ctx, the term's context, ends, the error is of kind
// Unavailable.
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
