package rest

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// WriteError writes an error as the complete answer.
func WriteError(w http.ResponseWriter, err error) {
	f := explain(err)
	WriteStatus(w, rpc.HTTPStatus(f.Kind), f)
}

// ErrorJSON renders an error as one line of JSON.
func ErrorJSON(err error) []byte { return statusJSON(explain(err)) }

// WriteStatus writes a fault as the complete answer with the given HTTP status.
func WriteStatus(w http.ResponseWriter, code int, f *fault.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(statusJSON(f), '\n')) //nolint:errcheck,gosec // it fails only on a closed connection; JSON is not a page
}

func statusJSON(f *fault.Error) []byte {
	text, err := protojson.Marshal(status.Convert(rpc.ToStatus(readable(f))).Proto())
	if err != nil {
		// This binary does not know the type of a detail, so write only the message.
		return fmt.Appendf(nil, `{"code":%d,"message":%q}`, rpc.Code(f.Kind), f.Message)
	}
	return Compact(text)
}

// readable replaces the bytes of a fault that are not UTF-8, such as in the name of a query
// parameter. JSON cannot have them.
func readable(f *fault.Error) *fault.Error {
	text := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	valid := *f
	valid.Message, valid.Fields = text(f.Message), slices.Clone(f.Fields)
	for i, field := range valid.Fields {
		valid.Fields[i] = fault.Field{Name: text(field.Name), Problem: text(field.Problem)}
	}
	return &valid
}

// explain returns the fault in an error. grpc-gateway reports an invalid request as
// InvalidArgument with a message. If refusal made the message, it names a field, and explain
// returns a fault about that field.
func explain(err error) *fault.Error {
	f := rpc.FromStatus(err)
	if status.Code(err) != codes.InvalidArgument || isFault(err) {
		return f
	}
	if at := located.FindStringSubmatch(f.Message); at != nil {
		return fault.BadField(fault.ReasonInvalid, at[2], "%s", at[1])
	}
	if at := inPath.FindStringSubmatch(f.Message); at != nil {
		return fault.BadField(fault.ReasonInvalid, at[1], "must be an integer")
	}
	if _, escape, found := strings.Cut(f.Message, "invalid URL escape "); found {
		f.Message = "the query cannot be read: " + escape + " is not a valid escape"
	}
	return f
}

// located matches the message of a refusal, to which grpc-gateway or protojson may have added
// a prefix.
var located = regexp.MustCompile(`^(?s)(.*) \(field (.+)\)$`)

// inPath matches grpc-gateway's error for a name in a path that must be an integer.
var inPath = regexp.MustCompile(`^type mismatch, parameter: (\w+), error: `)

// isFault reports whether Berth's own code made the error.
func isFault(err error) bool {
	var f *fault.Error
	if errors.As(err, &f) {
		return true
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == fault.Domain {
			return true
		}
	}
	return false
}

// noRoute answers a request whose path or method Berth does not have.
func noRoute(w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusNotFound:
		WriteError(w, fault.New(fault.NotFound, fault.ReasonNotFound, "there is nothing at %s", r.URL.Path))
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		WriteStatus(w, http.StatusMethodNotAllowed,
			fault.New(fault.Invalid, fault.ReasonUnsupported, "%s is not supported at %s", r.Method, r.URL.Path))
	default:
		WriteError(w, fault.New(fault.Invalid, fault.ReasonInvalid, "the path %s cannot be read", r.URL.Path))
	}
}
