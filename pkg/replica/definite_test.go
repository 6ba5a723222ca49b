package replica

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
)

// A call is repeated until its outcome is definite. If a gateway does not serve the call on
// the listener, the outcome is not definite, because no service has refused the call.
func TestACallIsRepeatedUntilItsOutcomeIsDefinite(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		calls int
	}{
		"unavailable":       {fault.New(fault.Unavailable, fault.ReasonUnavailable, "away"), 2},
		"overloaded":        {fault.New(fault.Exhausted, fault.ReasonOverloaded, "busy"), 2},
		"wrong listener":    {status.Error(codes.Unimplemented, "x is served on --internal-listen"), 2},
		"too large":         {fault.New(fault.Exhausted, fault.ReasonTooLarge, "large"), 1},
		"refused":           {fault.New(fault.Precondition, fault.ReasonNotLeader, "another leads"), 1},
		"unsupported field": {fault.BadField(fault.ReasonUnsupported, "start", "is reserved"), 1},
	} {
		calls := 0
		_, err := Definite(t.Context(), slog.New(slog.DiscardHandler), name, func(context.Context) (int, error) {
			if calls++; calls > 1 {
				return 7, nil
			}
			return 0, c.err
		})
		if calls != c.calls || (err == nil) != (c.calls == 2) {
			t.Errorf("%s: %d calls, want %d: %v", name, calls, c.calls, err)
		}
	}
}
