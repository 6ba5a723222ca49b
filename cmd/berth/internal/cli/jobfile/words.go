package jobfile

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// field finds a field by its JSON name, or by its proto name as proto3 JSON
// allows.
func field(md protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(key); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(key)
}

// nested says whether a field holds messages of Berth's own, whose keys are
// known; durations, times and free-form lists are values.
func nested(fd protoreflect.FieldDescriptor) bool {
	return !fd.IsMap() && fd.Message() != nil && fd.Message().ParentFile().Package() == "berth.v1"
}

// wanted says in words what the value of a field must be.
func wanted(fd protoreflect.FieldDescriptor) string {
	if fd.IsMap() {
		return "a mapping, each value " + wanted(fd.MapValue())
	}
	one := wantedOne(fd)
	if fd.IsList() {
		return "a list, each item " + one
	}
	return one
}

func wantedOne(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return "a string (quote it)"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "a whole number"
	case protoreflect.BytesKind:
		return "bytes in base64"
	case protoreflect.EnumKind:
		var names []string
		values := fd.Enum().Values()
		for i := range values.Len() {
			if values.Get(i).Number() != 0 {
				names = append(names, string(values.Get(i).Name()))
			}
		}
		return "one of " + strings.Join(names, ", ")
	}
	switch fd.Message().FullName() {
	case "google.protobuf.Duration":
		return "a duration such as 90s, 10m or 1h30m"
	case "google.protobuf.Timestamp":
		return `a time such as "2026-01-02T15:04:05Z"`
	}
	return fmt.Sprintf("a %s", fd.Message().Name())
}

// didYouMean suggests the field that a wrong key is nearest to.
func didYouMean(key string, md protoreflect.MessageDescriptor) string {
	best, bestDistance := "", 3
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Number() >= firstOutput {
			continue
		}
		if d := distance(strings.ToLower(key), strings.ToLower(fd.JSONName())); d < bestDistance {
			best, bestDistance = fd.JSONName(), d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance is how many letters are to be put in, left out or changed to turn a
// into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
