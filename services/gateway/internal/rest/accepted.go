package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"berth.dev/pkg/quantity"
	"berth.dev/pkg/wire"
)

const (
	durationName  = "google.protobuf.Duration"
	timestampName = "google.protobuf.Timestamp"
)

// notNegative are fields whose range begins at 0, although their type has a sign.
var notNegative = []protoreflect.Name{"count", "index", "page_size", "target_size"}

// accepted says what a field takes: a list, a map or one value.
func accepted(field protoreflect.FieldDescriptor, element bool) string {
	switch {
	case field.IsMap() && !element:
		return "an object"
	case field.IsList() && !element:
		return "a list"
	case field.IsMap():
		field = field.MapValue()
	}
	switch field.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		least := math.MinInt32
		if slices.Contains(notNegative, field.Name()) {
			least = 0
		}
		return fmt.Sprintf("a whole number from %d to %d", least, math.MaxInt32)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return "a whole number of at most 63 bits"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return "a whole number from 0 of at most 64 bits"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.BytesKind:
		return "a string of base64"
	case protoreflect.EnumKind:
		return "one of " + strings.Join(wire.EnumNames(field.Enum()), ", ")
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case durationName:
			return `a duration such as "30s", "10m" or "1h30m"`
		case timestampName:
			return `a time such as "2006-01-02T15:04:05Z"`
		}
		return "an object"
	}
	return "a string of valid UTF-8"
}

// descriptor is that of what a body is decoded into: a message, or the field of a
// request that is one.
func descriptor(v any) protoreflect.MessageDescriptor {
	for t := reflect.TypeOf(v); t != nil && t.Kind() == reflect.Pointer; t = t.Elem() {
		if m, ok := reflect.Zero(t).Interface().(proto.Message); ok {
			return m.ProtoReflect().Descriptor()
		}
	}
	return nil
}

// fieldAt finds the field that a path such as workers[1].index leads to, and
// whether the path goes on to an element of it.
func fieldAt(m protoreflect.MessageDescriptor, path string) (field protoreflect.FieldDescriptor, element bool) {
	for part := range strings.SplitSeq(path, ".") {
		if field != nil && field.IsMap() && (!element || m == nil) {
			element = true // the rest may be any text
			m = field.MapValue().Message()
			continue
		}
		if m == nil {
			return nil, false
		}
		name, index, _ := strings.Cut(part, "[")
		if field = m.Fields().ByJSONName(name); field == nil {
			field = m.Fields().ByTextName(name)
		}
		if field == nil {
			return nil, false
		}
		element = index != ""
		m = field.Message()
	}
	return field, element
}

// mistyped matches protojson's messages about a value of the wrong type.
var mistyped = regexp.MustCompile(`unexpected token (.*)$|invalid value for \w+ field [^:]*: (.*)$|invalid \S+ value (.*)$|value out of range: (.*)$|invalid value: (.*)$|invalid UTF-8`)

// expected says what a field takes where an error of protojson is about its value.
func expected(v any, path string, err error) (string, bool) {
	at := mistyped.FindStringSubmatch(err.Error())
	m := descriptor(v)
	if at == nil || m == nil {
		return "", false
	}
	field, element := fieldAt(m, path)
	if field == nil {
		return "", false
	}
	got := strings.Join(at[1:], "")
	switch got {
	case "{":
		got = "an object"
	case "[":
		got = "a list"
	case "":
		return "must be " + accepted(field, element), true
	}
	const most = 100
	if len(got) > most {
		got = strings.ToValidUTF8(got[:most], "") + "…"
	}
	if name, found := amount(field, path); found {
		return quantity.NotBase(name, got).Error(), true
	}
	return fmt.Sprintf("must be %s, got %s", accepted(field, element), got), true
}

// amount reports whether a path leads to an amount of a resource, and of which.
func amount(field protoreflect.FieldDescriptor, path string) (name string, found bool) {
	if field.Name() != "resources" || !field.IsMap() {
		return "", false
	}
	_, name, found = strings.Cut(path, "resources.")
	return name, found
}

// maxDurations bounds how many durations of a body may have Go's form. No message
// has more than a few.
const maxDurations = 16

// goDuration replaces the duration in Go's form that an error of protojson is
// about by the form that protojson reads.
func goDuration(body []byte, err error) ([]byte, bool) {
	at := position.FindStringSubmatch(err.Error())
	if at == nil || !strings.Contains(err.Error(), durationName) {
		return nil, false
	}
	line, _ := strconv.Atoi(at[1])
	column, _ := strconv.Atoi(at[2])
	start := offset(body, line, column)
	d := json.NewDecoder(bytes.NewReader(body[start:]))
	token, err := d.Token()
	text, ok := token.(string)
	if err != nil || !ok {
		return nil, false
	}
	seconds, ok := protoDuration(text)
	if !ok {
		return nil, false
	}
	end := start + int(d.InputOffset())
	return bytes.Join([][]byte{body[:start], []byte(strconv.Quote(seconds)), body[end:]}, nil), true
}

// protoDuration turns a duration in Go's form into that of protojson.
func protoDuration(text string) (string, bool) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return "", false
	}
	value := durationpb.New(d)
	sign := ""
	if d < 0 {
		sign, value.Seconds, value.Nanos = "-", -value.Seconds, -value.Nanos
	}
	return fmt.Sprintf("%s%d.%09ds", sign, value.GetSeconds(), value.GetNanos()), true
}

// checkQuery refuses the parameters that grpc-gateway would refuse in the words of
// its parser, and turns durations of Go's form into protojson's.
func checkQuery(m protoreflect.MessageDescriptor, values url.Values) error {
	for name, list := range values {
		field, _ := fieldAt(m, name)
		if field == nil {
			return fmt.Errorf("unknown query parameter %q", name)
		}
		if len(list) > 1 && !field.IsList() {
			return fmt.Errorf("must be given once, got %d values (field %s)", len(list), name)
		}
		for i, text := range list {
			if field.Message() != nil && field.Message().FullName() == durationName {
				if seconds, ok := protoDuration(text); ok {
					list[i] = seconds
					continue
				}
			}
			if !takes(field, text) {
				return fmt.Errorf("must be %s, got %q (field %s)", accepted(field, true), strings.ToValidUTF8(text, "\ufffd"), name)
			}
		}
	}
	return nil
}

// takes reports whether a scalar field can be parsed from a query parameter.
func takes(field protoreflect.FieldDescriptor, text string) bool {
	var err error
	switch field.Kind() {
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 0, 32)
	case protoreflect.Int64Kind:
		_, err = strconv.ParseInt(text, 0, 64)
	case protoreflect.Uint32Kind:
		_, err = strconv.ParseUint(text, 0, 32)
	case protoreflect.Uint64Kind:
		_, err = strconv.ParseUint(text, 0, 64)
	case protoreflect.BoolKind:
		_, err = strconv.ParseBool(text)
	case protoreflect.EnumKind:
		if number, err := strconv.ParseInt(text, 10, 32); err == nil {
			if value := field.Enum().Values().ByNumber(protoreflect.EnumNumber(number)); value != nil {
				text = string(value.Name())
			}
		}
		return slices.Contains(wire.EnumNames(field.Enum()), text)
	case protoreflect.MessageKind:
		return field.Message().FullName() != durationName
	}
	return err == nil && utf8.ValidString(text)
}
