package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// An error does not change when a process receives it and passes it on to another process.
func TestAFaultCrossesTheWire(t *testing.T) {
	for _, want := range []*fault.Error{
		fault.New(fault.Internal, fault.ReasonInternal, "broken"),
		fault.BadField(fault.ReasonBadName, "job", "%q is not a name", "/"),
		fault.New(fault.NotFound, fault.ReasonNotFound, "no job"),
		fault.New(fault.Conflict, fault.ReasonEpochMismatch, "epoch is 7"),
		fault.New(fault.Precondition, fault.ReasonNotLeader, "a leads").With("leader", "127.0.0.1:7101").With("term", "7"),
		fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "too old").With("cursor", "0-0"),
		fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "not ready"),
		fault.New(fault.Exhausted, fault.ReasonOverloaded, "too many"),
		fault.New(fault.Denied, fault.ReasonPermissionDenied, "not you"),
	} {
		t.Run(want.Kind.String(), func(t *testing.T) {
			once := rpc.ToStatus(fmt.Errorf("deep inside: %w", want))
			twice := rpc.ToStatus(once)
			if diff := cmp.Diff(want, rpc.FromStatus(twice)); diff != "" {
				t.Errorf("-sent +received:\n%s", diff)
			}
			if got := status.Code(twice); got != rpc.Code(want.Kind) {
				t.Errorf("code = %v, want %v", got, rpc.Code(want.Kind))
			}
		})
	}
}

// The status of an error does not contain the error's cause.
func TestStatusOmitsTheCause(t *testing.T) {
	err := rpc.ToStatus(fault.New(fault.Unavailable, fault.ReasonUnavailable, "try again").Because(errors.New("secret")))
	if got := status.Convert(err).Message(); got != "try again" {
		t.Errorf("message = %q", got)
	}
}

func TestForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   codes.Code
		kind   fault.Kind
		reason fault.Reason
		http   int
		exit   int
	}{
		{errors.New("oops"), codes.Internal, fault.Internal, fault.ReasonInternal, http.StatusInternalServerError,
			rpc.ExitFailed},
		{context.DeadlineExceeded, codes.DeadlineExceeded, fault.Unavailable, fault.ReasonUnavailable,
			http.StatusServiceUnavailable, rpc.ExitUnavailable},
		{context.Canceled, codes.Canceled, fault.Unavailable, fault.ReasonUnavailable, http.StatusServiceUnavailable,
			rpc.ExitUnavailable},
		{status.Error(codes.Unavailable, "gone"), codes.Unavailable, fault.Unavailable, fault.ReasonUnavailable,
			http.StatusServiceUnavailable, rpc.ExitUnavailable},
		{status.Error(codes.Unimplemented, "what"), codes.Unimplemented, fault.Invalid, fault.ReasonUnsupported,
			http.StatusBadRequest, rpc.ExitUsage},
		{status.Error(codes.NotFound, "where"), codes.NotFound, fault.NotFound, fault.ReasonNotFound, http.StatusNotFound,
			rpc.ExitNotFound},
		{status.Error(codes.DataLoss, "alas"), codes.DataLoss, fault.Internal, fault.ReasonInternal,
			http.StatusInternalServerError, rpc.ExitFailed},
		{status.Error(codes.ResourceExhausted, "larger than max"), codes.ResourceExhausted, fault.Exhausted,
			fault.ReasonTooLarge, http.StatusTooManyRequests, rpc.ExitFailed},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			sent := rpc.ToStatus(c.err)
			if got := status.Code(sent); got != c.code {
				t.Errorf("code = %v, want %v", got, c.code)
			}
			got := rpc.FromStatus(sent)
			if got.Kind != c.kind || got.Reason != c.reason {
				t.Errorf("decoded as %v %s", got.Kind, got.Reason)
			}
			if got := rpc.HTTPStatus(got.Kind); got != c.http {
				t.Errorf("HTTP status = %d", got)
			}
			if got := rpc.ExitCode(c.err); got != c.exit {
				t.Errorf("exit code = %d", got)
			}
		})
	}
}

func TestStatusOfNil(t *testing.T) {
	if rpc.ToStatus(nil) != nil || rpc.FromStatus(nil) != nil || rpc.ExitCode(nil) != rpc.ExitDone {
		t.Error("nil was converted to an error")
	}
}
