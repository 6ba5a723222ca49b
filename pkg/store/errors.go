package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrAmbiguous is wrapped by errors that leave open whether a write happened or
// will yet: time-outs, lost connections, changes of etcd's leader, a full
// database (whose error can be the answer to a write that was applied), and
// whatever is not known to be definite.
var ErrAmbiguous = errors.New("store: outcome unknown")

// ErrFull is wrapped, beside ErrAmbiguous, by errors that etcd answers when it has
// reached its quota: it takes no write until somebody has made room. Alone, it
// says that the write certainly did not happen: a [Committer] finds that out.
var ErrFull = errors.New("store: etcd is full")

// Definite errors: the write did not happen and will not.
var (
	// ErrCompacted: the revision asked for is no longer kept.
	ErrCompacted = errors.New("store: revision compacted")
	// ErrFutureRevision: the revision asked for is not there yet.
	ErrFutureRevision = errors.New("store: revision in the future")
	// ErrLeaseNotFound: the etcd lease has run out or was revoked.
	ErrLeaseNotFound = errors.New("store: etcd lease not found")
	// ErrTooLarge: more operations or bytes than etcd takes in one transaction.
	ErrTooLarge = errors.New("store: transaction too large")
	// ErrInvalid: a request etcd never takes, such as one key put twice.
	ErrInvalid = errors.New("store: invalid request")
	// ErrNoStream: this etcd, or the client within its process, answers in pages only.
	ErrNoStream = errors.New("store: no streams")
	// ErrDenied: the credentials do not allow it.
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

// classify turns an error of the etcd client into one of this package. It is the
// one place that decides what is definite: what it does not know is ambiguous,
// because a wrong "certainly not" loses a write and a wrong "perhaps" only
// repeats one.
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
	if s, ok := status.FromError(err); ok {
		switch s.Code() {
		case codes.PermissionDenied, codes.Unauthenticated:
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	return ambiguous(err)
}

// ambiguous wraps a cause.
func ambiguous(cause error) error { return fmt.Errorf("%w: %w", ErrAmbiguous, cause) }

// withDeadline gives a context without a deadline the default one.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
