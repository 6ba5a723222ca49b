package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"berth.dev/pkg/fault"
)

// strictJSON is proto3 JSON that shows every field and refuses what it does
// not know, including anything after the one value of a body.
type strictJSON struct {
	runtime.JSONPb
}

func newJSON() *strictJSON {
	return &strictJSON{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true}}}
}

// Marshal ends the text with a line, so that a shell's prompt stands below it.
func (j *strictJSON) Marshal(v any) ([]byte, error) {
	text, err := j.JSONPb.Marshal(v)
	return append(text, '\n'), err
}

func (j *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		d := json.NewDecoder(r)
		wrapped := runtime.DecoderWrapper{Decoder: d, UnmarshalOptions: j.UnmarshalOptions}
		if err := wrapped.Decode(v); err != nil {
			return err
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("the body goes on after its JSON value")
		}
		return nil
	})
}

// limitBody reads a body before anyone acts on it, so that one which is too
// large is refused with a clear answer.
func limitBody(limit int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			writeStatus(w, http.StatusRequestEntityTooLarge, fault.New(fault.Invalid, fault.ReasonTooLarge,
				"the body is larger than %d bytes", limit))
			return
		case err != nil:
			WriteError(w, fault.New(fault.Invalid, fault.ReasonInvalid, "the body ended too early").Because(err))
			return
		}
		if len(body) > 0 && r.Method != http.MethodPut && r.Method != http.MethodPost {
			WriteError(w, fault.New(fault.Invalid, fault.ReasonInvalid,
				"%s takes no body: what it may be given are query parameters, such as requestId", r.Method))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// strictQueries makes grpc-gateway refuse query parameters that name no field.
// It ignores them by itself, and a misspelt filter would list everything. Its
// parser is one for the whole process, so it is set once.
var strictQueries = sync.OnceFunc(func() {
	runtime.NewServeMux(runtime.SetQueryParameterParser(strictQuery{}))
})

type strictQuery struct {
	runtime.DefaultQueryParser
}

func (q strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for name := range values {
		if !hasField(m.ProtoReflect().Descriptor(), name) {
			return fmt.Errorf("unknown query parameter %q", name)
		}
	}
	return q.DefaultQueryParser.Parse(m, values, filter)
}

// hasField says whether a dotted path leads to a field, by JSON or proto name.
func hasField(m protoreflect.MessageDescriptor, path string) bool {
	for _, name := range strings.Split(path, ".") {
		if m == nil {
			return false
		}
		field := m.Fields().ByJSONName(name)
		if field == nil {
			field = m.Fields().ByTextName(name)
		}
		if field == nil {
			return false
		}
		m = field.Message()
	}
	return true
}
