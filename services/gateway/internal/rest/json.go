package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

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

func (j *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		d := json.NewDecoder(r)
		var body json.RawMessage
		if err := d.Decode(&body); errors.Is(err, io.EOF) {
			return err // no body, which has all fields at their defaults
		} else if err != nil {
			return notJSON(err)
		}
		if body[0] != '{' {
			return errors.New("the body must be a JSON object")
		}
		body, err := quantities(body)
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			err := j.Unmarshal(body, v)
			if err == nil {
				break
			}
			again, ok := goDuration(body, err)
			if !ok || n == maxDurations {
				return locate(body, v, err)
			}
			body = again
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("the body goes on after its JSON value")
		}
		return nil
	})
}

// notJSON says where a body ceases to be JSON.
func notJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("the body must be a JSON object: %s at byte %d", strings.ToValidUTF8(syntax.Error(), "\ufffd"), syntax.Offset)
	}
	return errors.New("the body must be a JSON object: it ends too early")
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
