package rest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// WriteError renders an error as a whole answer.
func WriteError(w http.ResponseWriter, err error) {
	f := explain(err)
	writeStatus(w, rpc.HTTPStatus(f.Kind), f)
}

// Errors gives other handlers the form of this package's errors.
type Errors struct{}

// WriteError renders an error as a whole answer.
func (Errors) WriteError(w http.ResponseWriter, err error) { WriteError(w, err) }

// ErrorJSON renders an error as one line of JSON.
func (Errors) ErrorJSON(err error) []byte { return statusJSON(explain(err)) }

// Refuse renders an error as a whole answer with an HTTP status of its own.
func Refuse(w http.ResponseWriter, code int, f *fault.Error) { writeStatus(w, code, f) }

func writeStatus(w http.ResponseWriter, code int, f *fault.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(statusJSON(f), '\n')) //nolint:errcheck,gosec // the reader has gone; JSON is not a page
}

func statusJSON(f *fault.Error) []byte {
	text, err := protojson.Marshal(status.Convert(rpc.ToStatus(f)).Proto())
	if err != nil {
		// A detail of a type this binary does not know: the message is enough.
		return fmt.Appendf(nil, `{"code":%d,"message":%q}`, rpc.Code(f.Kind), f.Message)
	}
	return text
}

// explain finds the fault in an error. Errors of reading a request come as
// InvalidArgument with nothing but a message, in which the field may be named.
func explain(err error) *fault.Error {
	f := rpc.FromStatus(err)
	if status.Code(err) != codes.InvalidArgument || ours(err) {
		return f
	}
	field, problem := "", f.Message
	if at := located.FindStringSubmatchIndex(problem); at != nil {
		field, problem = problem[at[2]:at[3]], preamble.ReplaceAllString(problem[:at[0]], "")
	}
	for _, p := range problems {
		if at := p.match.FindStringSubmatchIndex(problem); at != nil {
			field = cmp.Or(field, string(p.match.ExpandString(nil, "${field}", problem, at)))
			problem = string(p.match.ExpandString(nil, p.problem, problem, at))
			break
		}
	}
	if field == "" {
		f.Message = problem
		return f
	}
	return fault.BadField(fault.ReasonInvalid, field, "%s", problem)
}

// ours says whether the error was made by Berth, and needs no explaining.
func ours(err error) bool {
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

var (
	// located is what locate adds to a message.
	located = regexp.MustCompile(` \(field (.+)\)$`)
	// preamble is what stands before the problem in protojson's messages.
	preamble = regexp.MustCompile(`^proto:[\s\x{a0}](syntax error )?\(line \d+:\d+\): `)
)

// problems are the messages of protojson and grpc-gateway that name a field.
var problems = []struct {
	match   *regexp.Regexp
	problem string
}{
	{regexp.MustCompile(`unknown field "(?P<field>[^"]+)"`), "there is no such field"},
	{regexp.MustCompile(`duplicate field "(?P<field>[^"]+)"`), "it is given twice"},
	{regexp.MustCompile(`unknown query parameter "(?P<field>[^"]+)"`), "there is no such query parameter"},
	{regexp.MustCompile(`invalid URL escape (?P<value>.*)`), "the query cannot be read: ${value} is no valid escape"},
	{regexp.MustCompile(`invalid value for (?P<type>\w+) field (?P<field>[\w.]+): (?P<value>.*)`), "${value} is no ${type}"},
	{regexp.MustCompile(`parsing field "(?P<field>[^"]+)": (?P<value>.*)`), "${value}"},
}

// noRoute answers a path or method that there is none of.
func noRoute(w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusNotFound:
		WriteError(w, fault.New(fault.NotFound, fault.ReasonNotFound, "there is nothing at %s", r.URL.Path))
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		writeStatus(w, http.StatusMethodNotAllowed,
			fault.New(fault.Invalid, fault.ReasonUnsupported, "%s is not supported at %s", r.Method, r.URL.Path))
	default:
		WriteError(w, fault.New(fault.Invalid, fault.ReasonInvalid, "the path %s cannot be read", r.URL.Path))
	}
}
