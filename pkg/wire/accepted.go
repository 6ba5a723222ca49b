package wire

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The well-known messages that are a single value in JSON.
const (
	DurationName  protoreflect.FullName = "google.protobuf.Duration"
	TimestampName protoreflect.FullName = "google.protobuf.Timestamp"
)

// notNegative has the fields that must not be negative although their type is signed.
var notNegative = []protoreflect.Name{"count", "index", "page_size", "target_size"}

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
	return "a string of valid UTF-8"
}
