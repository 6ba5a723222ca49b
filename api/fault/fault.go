// Package fault is Berth's one error type. It is made deep, where the reason
// is known, and rendered once, at the edge: the gRPC code, the HTTP status and
// the exit code of the command line all derive from its kind.
//
// The package promises to import nothing but the standard library, so that the
// pure cores can say why they refuse.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what an error means to the one who called.
type Kind uint8

// The kinds. Only Unavailable leaves open whether the call took effect; every
// other kind says that it certainly did not.
const (
	// Internal is a defect of Berth itself.
	Internal Kind = iota
	// Invalid input: the same call never succeeds.
	Invalid
	// NotFound names something that is not there.
	NotFound
	// Conflict with what is there: read again, then decide.
	Conflict
	// Precondition of the system's state; not the caller's mistake.
	Precondition
	// OutOfRange is a cursor or page that is no longer kept.
	OutOfRange
	// Unavailable now, and perhaps applied: repeat, every call is idempotent.
	Unavailable
	// Exhausted is a limit reached.
	Exhausted
	// Denied says that the caller may not do this, whatever it sends.
	Denied
)

var kindNames = [...]string{"internal", "invalid", "not found", "conflict", "precondition", "out of range", "unavailable", "exhausted", "denied"}

func (k Kind) String() string { return kindNames[k] }

// Field is one field of a request that is wrong, in the names of the JSON.
type Field struct {
	Name, Problem string
}

// MetaNewestCycle is the key in Error.Meta under which a LOWER_CYCLE refusal names the
// highest cycle number that its sender has seen.
const MetaNewestCycle = "newestCycle"

// Error is the error type.
type Error struct {
	Kind   Kind
	Reason Reason
	// Message is a sentence for a person.
	Message string
	// Fields are the violations of an Invalid error.
	Fields []Field
	// Meta is machine-readable detail, such as the address of the leader.
	Meta map[string]string
	// Cause is not shown to callers.
	Cause error
}

// New makes an error of a kind with a reason from the list.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// BadField refuses a request for one of its fields.
func BadField(reason Reason, field, format string, args ...any) *Error {
	problem := fmt.Sprintf(format, args...)
	return &Error{
		Kind: Invalid, Reason: reason, Message: field + ": " + problem,
		Fields: []Field{{field, problem}},
	}
}

// With adds a machine-readable detail and answers the error itself.
func (e *Error) With(key, value string) *Error {
	if e.Meta == nil {
		e.Meta = map[string]string{}
	}
	e.Meta[key] = value
	return e
}

// Because names the cause and answers the error itself.
func (e *Error) Because(err error) *Error {
	e.Cause = err
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Message == "" {
		b.WriteString(e.Kind.String())
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Of finds the error in a chain; any other error is Internal.
func Of(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Internal, Reason: ReasonInternal, Message: err.Error()}
}

// Is says whether err carries the reason.
func Is(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}
