package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/model"
)

// asEscaped has paths read as they were sent: what is escaped in a name belongs
// to the name, and an empty name is not passed over. Otherwise both would be
// another path, and perhaps another reservation.
func asEscaped(calls, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		switch {
		case path.Clean(escaped) != escaped:
			noRoute(w, r, http.StatusNotFound)
		case path.Clean(r.URL.Path) != r.URL.Path:
			// http.ServeMux would send the caller elsewhere. Names like this one
			// are refused by who is called.
			calls.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	})
}

// keepEscaped has grpc-gateway unescape each name once. It unescapes twice where
// the escaped form is the usual one, which net/url leaves out.
func keepEscaped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept, location := *r, *r.URL
		location.RawPath = r.URL.EscapedPath()
		kept.URL = &location
		next.ServeHTTP(w, &kept)
	})
}

// agree refuses a reservation whose body names another than the path does, which
// grpc-gateway would pass over.
func agree(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		job, named := params["reservation.job"]
		if !named {
			next(w, r, params)
			return
		}
		name, named := params["reservation.name"]
		if !named {
			name = model.MainName
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			WriteError(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		body := struct{ Job, Stage, Name string }{}
		if json.Unmarshal(text, &body) != nil {
			next(w, r, params) // which says what is wrong with it
			return
		}
		for _, field := range []struct{ name, path, body string }{
			{"job", job, body.Job}, {"stage", params["reservation.stage"], body.Stage}, {"name", name, body.Name},
		} {
			if field.body != "" && field.body != field.path {
				WriteError(w, fault.BadField(fault.ReasonInvalid, field.name, "is %q, and %q in the path", field.body, field.path))
				return
			}
		}
		next(w, r, params)
	}
}
