// Package fault gives every error a kind that tells the caller whether the call may have
// taken effect, and a reason that is never renamed. It defines the only error type of
// Berth. Code returns such an error where the reason is known. Only the outermost layer
// converts the kind to a gRPC code, an HTTP status or an exit code of the command line.
//
// The package imports only the standard library, so that the cores, which do no I/O, can
// use it.
package fault

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Kind says what an error means for the caller.
type Kind uint8

// The kinds of errors. After an error of kind Unavailable the call may have taken effect.
// After an error of any other kind it did not.
const (
	// Internal is a defect of Berth itself.
	Internal Kind = iota
	// Invalid means that the input is invalid. The same call never succeeds.
	Invalid
	// NotFound means that the named object does not exist.
	NotFound
	// Conflict means that the request contradicts the current state. The caller should read
	// the state again and then decide.
	Conflict
	// Precondition means that the state of the system does not allow the request. It is not
	// a mistake of the caller.
	Precondition
	// OutOfRange means that a cursor or page token refers to data that was deleted.
	OutOfRange
	// Unavailable means that the call may or may not have been applied. The caller should
	// repeat the call: every call is idempotent.
	Unavailable
	// Exhausted means that a limit was reached, for example of queued requests or of the
	// size of a message.
	Exhausted
	// Denied means that the caller may not do this, with any parameters.
	Denied
)

var kindNames = [...]string{"internal", "invalid", "not found", "conflict", "precondition", "out of range",
	"unavailable", "exhausted", "denied"}

func (k Kind) String() string { return kindNames[k] }

// Field is an invalid field of a request. Name is its name in JSON.
type Field struct {
	Name, Problem string
}

// MetaNewestCycle is the key in Error.Meta of the highest cycle number that
// executor-state has seen. Errors with the reason LOWER_CYCLE have it.
const MetaNewestCycle = "newestCycle"

// MetaBadTask is a key in Error.Meta of an agent's refusal. It is set if the start failed
// because of the task itself, such as a program that does not exist.
const MetaBadTask = "badTask"

// MetaCombination is a key in Error.Meta of an error about an option. It is set if the value is
// valid, but not together with the values of other options.
const MetaCombination = "combination"

// Error is the only error type of Berth.
type Error struct {
	Kind   Kind
	Reason Reason
	// Message describes the error for people.
	Message string
	// Fields has the invalid fields of an error of kind Invalid.
	Fields []Field
	// Meta has machine-readable details, such as the address of the leader.
	Meta map[string]string
	// Cause is the error that caused this one. It is not sent to callers.
	Cause error
}

// New returns an error with a kind, a reason and a formatted message.
func New(kind Kind, reason Reason, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// BadField returns an error of kind Invalid for one field of a request.
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

// Of returns the first *Error in the chain of err. If the chain has none, Of returns an
// error of kind Internal with the message of err.
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

// Is reports whether the chain of err has an *Error with the reason.
func Is(err error, reason Reason) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}
