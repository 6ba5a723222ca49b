// Package fault has Berth's one error type. Code returns it where the reason is known.
// Only the outermost layer renders it: the gRPC code, the HTTP status and the exit code
// of the command line derive from its kind.
//
// The package only imports the standard library, so that the pure cores can use it.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Kind is the meaning of an error for the caller.
type Kind uint8

// The kinds. Only Unavailable leaves open whether the call took effect; with every
// other kind it did not.
const (
	// Internal is a defect of Berth itself.
	Internal Kind = iota
	// Invalid input: the same call never succeeds.
	Invalid
	// NotFound means that the named object does not exist.
	NotFound
	// Conflict means that the request contradicts the current state: read it again,
	// then decide.
	Conflict
	// Precondition means that the system's state does not allow the request; it is not
	// the caller's mistake.
	Precondition
	// OutOfRange means that a cursor or page is no longer kept.
	OutOfRange
	// Unavailable means that the call may or may not have been applied: repeat it,
	// every call is idempotent.
	Unavailable
	// Exhausted means that a limit is reached.
	Exhausted
	// Denied means that the caller may not do this, whatever it sends.
	Denied
)

var kindNames = [...]string{"internal", "invalid", "not found", "conflict", "precondition", "out of range",
	"unavailable", "exhausted", "denied"}

func (k Kind) String() string { return kindNames[k] }

// Field is an invalid field of a request, by its name in JSON.
type Field struct {
	Name, Problem string
}

// MetaNewestCycle is the key in Error.Meta of a LOWER_CYCLE refusal for the highest
// cycle number that executor-state has seen.
const MetaNewestCycle = "newestCycle"

// Error is the error type.
type Error struct {
	Kind   Kind
	Reason Reason
	// Message is a text for a person.
	Message string
	// Fields are the invalid fields of an Invalid error.
	Fields []Field
	// Meta is machine-readable detail, such as the address of the leader.
	Meta map[string]string
	// Cause is not sent to callers.
	Cause error
}

// New returns an error of a kind with a reason of the list.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// BadField returns an Invalid error for one field of a request.
func BadField(reason Reason, field, format string, args ...any) *Error {
	problem := fmt.Sprintf(format, args...)
	return &Error{
		Kind: Invalid, Reason: reason, Message: field + ": " + problem,
		Fields: []Field{{field, problem}},
	}
}

// With adds a machine-readable detail and returns the error itself.
func (e *Error) With(key, value string) *Error {
	if e.Meta == nil {
		e.Meta = map[string]string{}
	}
	e.Meta[key] = value
	return e
}

// Because sets the cause and returns the error itself.
func (e *Error) Because(err error) *Error {
	e.Cause = err
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(e.Message, e.Kind.String()))
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Of returns the Error in a chain; any other error becomes an Internal one.
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

// Is reports whether err has the reason.
func Is(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}
