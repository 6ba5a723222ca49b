package rest

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"

	"berth.dev/api/fault"
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

// NewDecoder implements runtime.Marshaler.
func (j *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error { return decodeBody(r, v, j.Unmarshal) })
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
