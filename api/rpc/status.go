package rpc

import (
	"cmp"
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

// ToStatus converts an error to a gRPC status. The kind determines the code, ErrorInfo
// with domain "berth" contains the reason and details, and BadRequest contains the
// fields. ToStatus does not change a status, so that a forwarded error stays the same. It
// converts the error of a context to the corresponding code and any other error to
// Internal.
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
	// gRPC cannot send a status with invalid UTF-8.
	message := strings.ToValidUTF8(cmp.Or(f.Message, f.Kind.String()), "\uFFFD")
	plain := status.New(Code(f.Kind), message)
	detailed, err := plain.WithDetails(details...)
	if err != nil {
		// This fails only if a detail contains invalid UTF-8.
		return plain.Err()
	}
	return detailed.Err()
}

// Pack returns the status of an error as bytes, for an answer with several results.
func Pack(err error) []byte {
	// This cannot fail, because ToStatus makes the text valid UTF-8.
	text, _ := proto.Marshal(status.Convert(ToStatus(err)).Proto())
	return text
}

// Unpack decodes an error that Pack encoded. It never returns nil: if the bytes are not
// an error, it returns an Internal error.
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

// FromStatus converts the error of a call to an Error. A status from other software, such
// as gRPC itself, gets the kind that is nearest to its code.
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
	f = &fault.Error{Kind: fault.Internal, Reason: fault.ReasonInternal}
	if known, ok := foreign[s.Code()]; ok {
		*f = known
	}
	if s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "larger than max") {
		f.Reason = fault.ReasonTooLarge // gRPC's error for a message over the limit
	}
	f.Message = s.Message()
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

// IsFault reports whether the error of a call is an Error of Berth, and not one of gRPC or of
// other software. Only ToStatus adds such details.
func IsFault(err error) bool {
	var f *fault.Error
	if errors.As(err, &f) {
		return true
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == fault.Domain {
			return true
		}
	}
	return false
}

// Code returns the gRPC code of a kind.
func Code(kind fault.Kind) codes.Code { return kinds[kind].code }

// HTTPStatus returns the HTTP status of a kind.
func HTTPStatus(kind fault.Kind) int { return kinds[kind].http }

// Exit codes of the command line.
const (
	ExitDone = iota
	ExitFailed
	ExitUsage
	ExitNotFound
	ExitUnavailable
)

// ExitCode returns the exit code of a process that ended with err.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	return kinds[FromStatus(err).Kind].exit
}

// kinds has the gRPC code, the HTTP status and the exit code of each kind.
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

// foreign has the kind and the reason for the code of a status that has no reason of
// Berth. A status with any other code is Internal.
var foreign = map[codes.Code]fault.Error{
	codes.InvalidArgument:    {Kind: fault.Invalid, Reason: fault.ReasonInvalid},
	codes.Unimplemented:      {Kind: fault.Invalid, Reason: fault.ReasonUnsupported},
	codes.NotFound:           {Kind: fault.NotFound, Reason: fault.ReasonNotFound},
	codes.Aborted:            {Kind: fault.Conflict, Reason: fault.ReasonInvalid},
	codes.AlreadyExists:      {Kind: fault.Conflict, Reason: fault.ReasonInvalid},
	codes.FailedPrecondition: {Kind: fault.Precondition, Reason: fault.ReasonInvalid},
	codes.PermissionDenied:   {Kind: fault.Denied, Reason: fault.ReasonPermissionDenied},
	codes.Unauthenticated:    {Kind: fault.Precondition, Reason: fault.ReasonNotAllowed},
	codes.OutOfRange:         {Kind: fault.OutOfRange, Reason: fault.ReasonInvalid},
	codes.Unavailable:        {Kind: fault.Unavailable, Reason: fault.ReasonUnavailable},
	codes.DeadlineExceeded:   {Kind: fault.Unavailable, Reason: fault.ReasonUnavailable},
	codes.Canceled:           {Kind: fault.Unavailable, Reason: fault.ReasonUnavailable},
	codes.ResourceExhausted:  {Kind: fault.Exhausted, Reason: fault.ReasonOverloaded},
}
