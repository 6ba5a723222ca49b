package wire

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/pkg/model"
)

// The well-known messages that are a single value in JSON.
const (
	DurationName  protoreflect.FullName = "google.protobuf.Duration"
	TimestampName protoreflect.FullName = "google.protobuf.Timestamp"
)

// notNegative has the fields that must not be negative although their type is signed.
var notNegative = []protoreflect.Name{"count", "index", "page_size", "target_size"}

// words describes the words that a field accepts whose type is string.
var words = map[protoreflect.FullName]string{
	"berth.v1.Lifetime.from":                 oneOf(model.FromCreated, model.FromLive),
	"berth.v1.Reservation.on_worker_failure": oneOf(model.OnFailedNotify, model.OnFailedRestart, model.OnFailedFail),
	"berth.v1.Reservation.on_worker_loss":    oneOf(model.OnLossNotify, model.OnLossReplace),
	"berth.v1.Reservation.requeue":           oneOf(model.RequeueFirst, model.RequeueByOrder),
	"berth.v1.Reservation.restart":           oneOf(model.RestartNever, model.RestartOnFailure, model.RestartAlways),
	"berth.v1.Reservation.shrink":            oneOf(model.ShrinkNever, model.ShrinkHighest),
	"berth.v1.Task.stop_signal":              aSignal,
	"berth.v1.SignalWorkersRequest.signal":   aSignal,
	"berth.v1.VolumeRequest.on_loss":         oneOf(model.OnVolumeLossWait, model.OnVolumeLossReplace),
}

// aSignal describes the names of signals.
var aSignal = "one of " + strings.Join(model.SignalNames(), ", ") + ", with or without SIG"

// oneOf describes the names of values.
func oneOf[T fmt.Stringer](values ...T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return "one of " + strings.Join(names, ", ")
}

// Word returns the words that a field accepts whose type is string, or "" if it accepts any string.
func Word(field protoreflect.FieldDescriptor) string { return words[field.FullName()] }

// Accepted describes the values that one element of a field of the API accepts, for use
// in errors.
func Accepted(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.Int32Kind:
		least := math.MinInt32
		if slices.Contains(notNegative, field.Name()) {
			least = 0
		}
		return fmt.Sprintf("a whole number from %d to %d", least, math.MaxInt32)
	case protoreflect.Int64Kind:
		return "a whole number of at most 63 bits"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.BytesKind:
		return "a string of base64"
	case protoreflect.EnumKind:
		return "one of " + strings.Join(EnumNames(field.Enum()), ", ")
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case DurationName:
			return `a duration such as "30s", "10m" or "1h30m"`
		case TimestampName:
			return `a time such as "2006-01-02T15:04:05Z"`
		}
		return "an object"
	}
	return cmp.Or(Word(field), "a string of valid UTF-8")
}
