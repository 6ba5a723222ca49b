package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// asEscaped routes by the path as the caller sent it: an escaped character belongs to a
// name, and an empty name is not skipped. Otherwise the path could become the path of another
// reservation.
func asEscaped(calls, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		if !utf8.ValidString(r.URL.Path) {
			WriteError(w, fault.BadField(fault.ReasonInvalid, segmentField(r.URL.Path), "must be valid UTF-8"))
			return
		}
		switch {
		case path.Clean(escaped) != escaped:
			noRoute(w, r, http.StatusNotFound)
		case path.Clean(r.URL.Path) != r.URL.Path:
			// http.ServeMux would redirect the caller. The service rejects such a name.
			calls.ServeHTTP(w, r)
		default:
			rest.ServeHTTP(w, r)
		}
	})
}

// segmentField returns the field that the first invalid part of a path would set. A part is
// invalid if it is not UTF-8.
func segmentField(location string) string {
	before := ""
	for part := range strings.SplitSeq(location, "/") {
		if !utf8.ValidString(part) {
			break
		}
		before = part
	}
	switch before {
	case "jobs":
		return "job"
	case "stages":
		return "stage"
	case "executors":
		return "id"
	case "reservations", "skus", "pools":
		return "name"
	case "workers":
		return "index"
	}
	return "path"
}

// keepEscaped makes grpc-gateway unescape each name only once, by setting RawPath. net/url
// sets RawPath only if the path has an unusual escaped form, and without it grpc-gateway
// unescapes a name twice.
func keepEscaped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept, location := *r, *r.URL
		location.RawPath = r.URL.EscapedPath()
		kept.URL = &location
		next.ServeHTTP(w, &kept)
	})
}

// agree rejects a body that names another object than the path does. grpc-gateway alone would
// ignore the name in the body.
func agree(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			WriteError(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		body := map[string]json.RawMessage{}
		if json.Unmarshal(text, &body) != nil {
			next(w, r, params) // reports the error
			return
		}
		named := names(params)
		for _, field := range slices.Sorted(maps.Keys(named)) {
			var given string
			if json.Unmarshal(body[field], &given) == nil && given != "" && given != named[field] {
				WriteError(w, fault.BadField(fault.ReasonInvalid, field, "is %q in the body and %q in the path", given,
					named[field]))
				return
			}
		}
		next(w, r, params)
	}
}

// names returns the values that the path sets in a body, by the JSON names of their fields:
// the parameter "reservation.job" sets the field "job". The path of a reservation without a
// name means the reservation with the name main.
func names(params map[string]string) map[string]string {
	named := map[string]string{}
	if _, upsert := params["reservation.job"]; upsert {
		named["name"] = model.MainName
	}
	for param, value := range params {
		named[param[strings.LastIndex(param, ".")+1:]] = value
	}
	return named
}
