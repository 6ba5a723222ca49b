package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// strictQueries makes grpc-gateway reject unknown query parameters. By default grpc-gateway
// ignores them, so a misspelled filter would list everything. The parser is global to the
// process, so strictQueries sets it only once.
var strictQueries = sync.OnceFunc(func() {
	runtime.NewServeMux(runtime.SetQueryParameterParser(strictQuery{}))
})

type strictQuery struct {
	runtime.DefaultQueryParser
}

func (q strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	if err := checkQuery(m.ProtoReflect().Descriptor(), values); err != nil {
		return err
	}
	return q.DefaultQueryParser.Parse(m, values, filter)
}

// checkQuery rejects parameters that grpc-gateway would ignore, and parameters that it would
// reject with an error that names no accepted value.
func checkQuery(m protoreflect.MessageDescriptor, values url.Values) error {
	for name, list := range values {
		field := parameter(m, name)
		switch {
		case field == nil:
			return refusal(name, "there is no such query parameter")
		case field.IsMap():
			return refusal(name, "must name a key, such as %s[zone]=a", name)
		case field.Message() != nil && field.Message().FullName() != wire.DurationName:
			return refusal(name, "there is no such query parameter")
		case len(list) > 1:
			return refusal(name, "must be given once, got %d values", len(list))
		case !takes(field, list[0]):
			return refusal(name, "must be %s, got %q", wire.Accepted(field), strings.ToValidUTF8(list[0], "\ufffd"))
		}
	}
	return nil
}

// parameter returns the field that a query parameter sets; nil if there is none. For an element
// of a map, such as attributes[zone], it is the field of the values.
func parameter(m protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	name, key, found := strings.Cut(name, "[")
	field := fieldNamed(m, name)
	if field == nil || !found {
		return field
	}
	key, closed := strings.CutSuffix(key, "]")
	// grpc-gateway would ignore a key with such characters.
	if !field.IsMap() || !closed || key == "" || strings.ContainsAny(key, "[]\n") || !utf8.ValidString(key) {
		return nil
	}
	return field.MapValue()
}

// takes reports whether grpc-gateway parses a query parameter as the value of a field.
func takes(field protoreflect.FieldDescriptor, text string) bool {
	var err error
	switch field.Kind() {
	case protoreflect.Int32Kind:
		_, err = strconv.ParseInt(text, 0, 32)
	case protoreflect.Int64Kind:
		_, err = strconv.ParseInt(text, 0, 64)
	case protoreflect.BoolKind:
		_, err = strconv.ParseBool(text)
	case protoreflect.MessageKind: // a duration
		_, err = time.ParseDuration(text)
	case protoreflect.EnumKind:
		if number, err := strconv.ParseInt(text, 10, 32); err == nil {
			if value := field.Enum().Values().ByNumber(protoreflect.EnumNumber(number)); value != nil {
				text = string(value.Name())
			}
		}
		return slices.Contains(wire.EnumNames(field.Enum()), text)
	}
	return err == nil && utf8.ValidString(text)
}

// queried are the calls with fields that a query can set. In all other calls, the path and
// the body set every field.
var queried = []string{
	"PUT /v1/jobs/{reservation.job=*}/stages/{reservation.stage=*}/reservation",
	"PUT /v1/jobs/{reservation.job=*}/stages/{reservation.stage=*}/reservations/{reservation.name=*}",
	"GET /v1/jobs/{job=*}/stages/{stage=*}/reservation",
	"GET /v1/jobs/{job=*}/stages/{stage=*}/reservation:explain",
	"GET /v1/jobs/{job=*}/stages/{stage=*}/reservation:members",
	"GET /v1/jobs/{job=*}/stages/{stage=*}/reservations/{name=*}:members",
	"DELETE /v1/jobs/{job=*}/stages/{stage=*}/reservation",
	"DELETE /v1/jobs/{job=*}/stages/{stage=*}/reservations/{name=*}",
	"DELETE /v1/jobs/{job=*}",
	"GET /v1/jobs",
	"GET /v1/jobs/{job=*}/stages/{stage=*}/workers/{index=*}/output",
	"GET /v1/reservations",
	"GET /v1/reservations:pending",
	"GET /v1/executors",
	"GET /v1/assignments",
	"GET /v1/volumes",
	"GET /v1/usage",
	"GET /v1/usage/idle",
	"GET /v1/audit",
}

// noQuery rejects query parameters of calls that take none, because grpc-gateway ignores them
// without calling its parser.
func noQuery(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		pattern, _ := runtime.HTTPPattern(r.Context())
		if !slices.Contains(queried, r.Method+" "+pattern.String()) {
			if err := OnlyParameters(r.URL.Query()); err != nil {
				WriteError(w, err)
				return
			}
		}
		next(w, r, params)
	}
}

// OnlyParameters returns an error if a query has a parameter that is not known.
func OnlyParameters(query url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return fault.BadField(fault.ReasonInvalid, name, "there is no such query parameter")
		}
	}
	return nil
}
