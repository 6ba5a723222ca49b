package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"

	"berth.dev/api/fault"
)

// strictJSON is proto3 JSON that writes every field. It rejects unknown fields, and text
// after the value of a body.
type strictJSON struct {
	runtime.JSONPb
}

func newJSON() *strictJSON {
	return &strictJSON{runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true}}}
}

// Marshal ends the text with a newline, so that the prompt of a shell is on the next line.
func (j *strictJSON) Marshal(v any) ([]byte, error) {
	text, err := j.JSONPb.Marshal(v)
	return append(Compact(text), '\n'), err
}

// Compact removes the spaces that protojson adds to JSON in some builds. All builds of a
// gateway therefore write the same text, which is that of the documents.
func Compact(text []byte) []byte {
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		return text // an error of the caller left it incomplete
	}
	return compact.Bytes()
}

// NewDecoder implements runtime.Marshaler.
func (j *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error { return decodeBody(r, v, j.Unmarshal) })
}

// noBody rejects a body of a call that takes no body. The guard has read the body, so its
// length is known.
func noBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.Method != http.MethodPut && r.Method != http.MethodPost {
			WriteError(w, fault.New(fault.Invalid, fault.ReasonInvalid,
				"%s takes no body: use query parameters, such as requestId", r.Method))
			return
		}
		next.ServeHTTP(w, r)
	})
}
