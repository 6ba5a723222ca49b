package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrAmbiguous is wrapped by errors that leave it open whether a write happened or still
// will: timeouts, lost connections, changes of etcd's leader, a full database (etcd may
// return that error for a write that it applied), and every error that is not known to be
// definite.
var ErrAmbiguous = errors.New("store: outcome unknown")

// ErrFull is wrapped, together with ErrAmbiguous, by the errors of an etcd that has reached
// its quota and takes no write until an operator makes space. Without ErrAmbiguous it means
// that the write certainly did not happen: a [Committer] finds that out.
var ErrFull = errors.New("store: etcd is full")

// Definite errors: the write did not happen and will not.
var (
	// ErrCompacted: the requested revision is no longer kept.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrFutureRevision: the store has not reached the requested revision.
	ErrFutureRevision = errors.New("store: revision in the future")
	// ErrLeaseNotFound: the etcd lease has expired or was revoked.
	ErrLeaseNotFound = errors.New("store: etcd lease not found")
	// ErrTooLarge: the transaction has more operations or bytes than etcd accepts.
	ErrTooLarge = errors.New("store: transaction too large")
	// ErrInvalid: etcd never accepts this request, for example one that puts a key twice.
	ErrInvalid = errors.New("store: invalid request")
	// ErrNoStream: this etcd, or the client in its process, has no streams. Read pages.
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
	{rpctypes.ErrAuthFailed, ErrDenied},
	{rpctypes.ErrUserEmpty, ErrDenied},
}

// classify turns an error of the etcd client into one of this package. It alone decides
// which errors are definite. Unknown errors are ambiguous: a wrong "definite" loses a
// write, a wrong "ambiguous" only repeats one.
func classify(err error) error {
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

// ambiguous wraps a cause.
func ambiguous(cause error) error { return fmt.Errorf("%w: %w", ErrAmbiguous, cause) }

// withDeadline adds the default deadline to a context without one.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
