package rpc

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"berth.dev/api/fault"
)

// ToStatus renders an error as a gRPC status: the code from its kind, the
// reason and details as ErrorInfo of domain "berth", the fields as BadRequest.
// A status stays what it is, so that forwarding adds nothing; the end of a
// context becomes its code; any other error is Internal.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		var carrier interface{ GRPCStatus() *status.Status }
		if errors.As(err, &carrier) {
			return carrier.GRPCStatus().Err()
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
		f = fault.Of(err)
	}
	message := f.Message
	if message == "" {
		message = f.Kind.String()
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: string(f.Reason), Domain: fault.Domain, Metadata: f.Meta,
	}}
	if len(f.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, field := range f.Fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: field.Name, Description: field.Problem,
			})
		}
		details = append(details, bad)
	}
	// A status with any other text cannot be sent.
	message = strings.ToValidUTF8(message, "\uFFFD")
	plain := status.New(Code(f.Kind), message)
	detailed, err := plain.WithDetails(details...)
	if err != nil {
		// Only a message that is no valid UTF-8 gets here.
		return plain.Err()
	}
	return detailed.Err()
}

// Pack renders an error as ToStatus does, as bytes that go inside a message: an
// answer to several things tells so which of them failed.
func Pack(err error) []byte {
	// A status always marshals: ToStatus saw to its text.
	text, _ := proto.Marshal(status.Convert(ToStatus(err)).Proto())
	return text
}

// Unpack reads what Pack has made. It never returns nil: what a peer sent in place
// of an error, but is none, is an Internal error.
func Unpack(text []byte) *fault.Error {
	s := &spb.Status{}
	if err := proto.Unmarshal(text, s); err != nil {
		return fault.New(fault.Internal, fault.ReasonInternal, "the error cannot be decoded").Because(err)
	}
	if f := FromStatus(status.FromProto(s).Err()); f != nil {
		return f
	}
	return fault.New(fault.Internal, fault.ReasonInternal, "the error has code 0")
}

// FromStatus reads an error that a call returned. A status of someone else,
// such as gRPC itself, gets the kind nearest to its code.
func FromStatus(err error) *fault.Error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = status.FromContextError(err).Err()
	}
	s := status.Convert(err)
	kind, reason := kindOf(s)
	f = fault.New(kind, reason, "%s", s.Message())
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == fault.Domain {
				f.Reason, f.Meta = fault.Reason(d.GetReason()), d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				f.Fields = append(f.Fields, fault.Field{Name: v.GetField(), Problem: v.GetDescription()})
			}
		}
	}
	return f
}

// Code is the gRPC code of a kind.
func Code(kind fault.Kind) codes.Code { return kinds[kind].code }

// HTTPStatus is the HTTP status of a kind.
func HTTPStatus(kind fault.Kind) int { return kinds[kind].http }

// Exit codes of the command line.
const (
	ExitDone = iota
	ExitFailed
	ExitUsage
	ExitNotFound
	ExitUnavailable
)

// ExitCode is the exit code of a process that ended with err.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	return kinds[FromStatus(err).Kind].exit
}

// kinds is the one table that says how each kind is rendered.
var kinds = [...]struct {
	code codes.Code
	http int
	exit int
}{
	fault.Internal:     {codes.Internal, 500, ExitFailed},
	fault.Invalid:      {codes.InvalidArgument, 400, ExitUsage},
	fault.NotFound:     {codes.NotFound, 404, ExitNotFound},
	fault.Conflict:     {codes.Aborted, 409, ExitFailed},
	fault.Precondition: {codes.FailedPrecondition, 412, ExitFailed},
	fault.OutOfRange:   {codes.OutOfRange, 410, ExitFailed},
	fault.Unavailable:  {codes.Unavailable, 503, ExitUnavailable},
	fault.Exhausted:    {codes.ResourceExhausted, 429, ExitFailed},
	fault.Denied:       {codes.PermissionDenied, 403, ExitFailed},
}

// kindOf is the way back, for statuses that carry no reason of ours.
func kindOf(s *status.Status) (fault.Kind, fault.Reason) {
	switch s.Code() {
	case codes.InvalidArgument:
		return fault.Invalid, fault.ReasonInvalid
	case codes.Unimplemented:
		return fault.Invalid, fault.ReasonUnsupported
	case codes.NotFound:
		return fault.NotFound, fault.ReasonNotFound
	case codes.Aborted, codes.AlreadyExists:
		return fault.Conflict, fault.ReasonInvalid
	case codes.FailedPrecondition:
		return fault.Precondition, fault.ReasonInvalid
	case codes.PermissionDenied:
		return fault.Denied, fault.ReasonPermissionDenied
	case codes.Unauthenticated:
		return fault.Precondition, fault.ReasonNotAllowed
	case codes.OutOfRange:
		return fault.OutOfRange, fault.ReasonInvalid
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return fault.Unavailable, fault.ReasonUnavailable
	case codes.ResourceExhausted:
		// Of gRPC's own errors these are messages over the limit, and callers that are
		// asked to be calmer.
		if strings.Contains(s.Message(), "larger than max") {
			return fault.Exhausted, fault.ReasonTooLarge
		}
		return fault.Exhausted, fault.ReasonOverloaded
	default:
		return fault.Internal, fault.ReasonInternal
	}
}
