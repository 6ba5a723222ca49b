package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		// After these errors, the write may have been applied.
		{context.DeadlineExceeded, ErrAmbiguous},
		{context.Canceled, ErrAmbiguous},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), ErrAmbiguous},
		{rpctypes.ErrNoSpace, ErrAmbiguous}, // may be the answer to a write that was applied
		{rpctypes.ErrTooManyRequests, ErrAmbiguous},
		{rpctypes.ErrLeaderChanged, ErrAmbiguous},
		{rpctypes.ErrNoLeader, ErrAmbiguous},
		{rpctypes.ErrNotLeader, ErrAmbiguous},
		{rpctypes.ErrStopped, ErrAmbiguous},
		{rpctypes.ErrTimeout, ErrAmbiguous},
		{rpctypes.ErrTimeoutDueToLeaderFail, ErrAmbiguous},
		{rpctypes.ErrTimeoutDueToConnectionLost, ErrAmbiguous},
		{rpctypes.ErrUnhealthy, ErrAmbiguous},
		{rpctypes.ErrCorrupt, ErrAmbiguous},
		{status.Error(codes.Unavailable, "connection reset"), ErrAmbiguous},
		{status.Error(codes.Unknown, "?"), ErrAmbiguous},
		{status.Error(codes.Internal, "?"), ErrAmbiguous},
		{status.Error(codes.DeadlineExceeded, "late"), ErrAmbiguous},
		{status.Error(codes.NotFound, "no such route"), ErrAmbiguous},
		{io.EOF, ErrAmbiguous},
		// After these errors, the write was certainly not applied.
		{rpctypes.ErrCompacted, ErrCompacted},
		{rpctypes.ErrFutureRev, ErrFutureRevision},
		{rpctypes.ErrLeaseNotFound, ErrLeaseNotFound},
		{rpctypes.ErrTooManyOps, ErrTooLarge},
		{rpctypes.ErrRequestTooLarge, ErrTooLarge},
		{rpctypes.ErrDuplicateKey, ErrInvalid},
		{rpctypes.ErrEmptyKey, ErrInvalid},
		{rpctypes.ErrLeaseTTLTooLarge, ErrInvalid},
		{rpctypes.ErrPermissionDenied, ErrDenied},
		{rpctypes.ErrAuthFailed, ErrLogin},
		{rpctypes.ErrGRPCLeaseNotFound, ErrLeaseNotFound},
		{status.Error(codes.Unauthenticated, "?"), ErrDenied},
		{status.Error(codes.PermissionDenied, "?"), ErrDenied},
	} {
		got := Classify(c.err)
		if !errors.Is(got, c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
		if ambiguous := errors.Is(got, ErrAmbiguous); ambiguous != (c.want == ErrAmbiguous) {
			t.Errorf("%v is both ambiguous and definite", c.err)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%v: the cause is lost", c.err)
		}
	}
	if Classify(nil) != nil {
		t.Error("nil is an error")
	}
}
