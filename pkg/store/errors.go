package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrAmbiguous is wrapped by errors after which a write may have happened or may still
// happen. These are timeouts, lost connections, changes of etcd's leader, a full
// database, and every error that is not known to be definite. etcd may return the error
// of a full database for a write that it applied.
var ErrAmbiguous = errors.New("store: outcome unknown")

// ErrFull is wrapped, together with ErrAmbiguous, by the errors of an etcd that has
// reached its quota and accepts no writes until an operator makes space. If an error
// wraps ErrFull without ErrAmbiguous, the write definitely did not happen; only a
// [Committer] returns such errors.
var ErrFull = errors.New("store: etcd is full")

// Definite errors: the write did not happen and will not.
var (
	// ErrCompacted: etcd has compacted the requested revision.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrFutureRevision: the store has not reached the requested revision.
	ErrFutureRevision = errors.New("store: revision in the future")
	// ErrLeaseNotFound: the etcd lease has expired or was revoked.
	ErrLeaseNotFound = errors.New("store: etcd lease not found")
	// ErrTooLarge: the transaction has more operations or bytes than etcd accepts.
	ErrTooLarge = errors.New("store: transaction too large")
	// ErrInvalid: etcd never accepts this request, for example because it puts a key twice.
	ErrInvalid = errors.New("store: invalid request")
	// ErrNoStream: this etcd, or its client, does not support streams. The caller must read
	// pages.
	ErrNoStream = errors.New("store: no streams")
	// ErrDenied: the credentials do not permit the request.
	ErrDenied = errors.New("store: permission denied")
)

var definite = []struct {
	etcd, ours error
}{
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
	{rpctypes.ErrUserEmpty, ErrLogin},
	{rpctypes.ErrInvalidAuthToken, ErrLogin},
}

// Classify converts an error of the etcd client to an error of this package. No other
// function decides which errors are definite. Unknown errors are ambiguous: a wrong
// "definite" would lose a write, but a wrong "ambiguous" only repeats a write.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ambiguous(err)
	}
	known := rpctypes.Error(err)
	for _, d := range definite {
		if errors.Is(known, d.etcd) {
			return fmt.Errorf("%w: %w", d.ours, err)
		}
	}
	if errors.Is(known, rpctypes.ErrNoSpace) {
		return ambiguous(fmt.Errorf("%w: %w", ErrFull, err))
	}
	if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unauthenticated {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return ambiguous(err)
}

// ambiguous returns an error that wraps ErrAmbiguous and the cause.
func ambiguous(cause error) error { return fmt.Errorf("%w: %w", ErrAmbiguous, cause) }

// withDeadline adds the default deadline to a context without one.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
