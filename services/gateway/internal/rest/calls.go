package rest

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// Calls makes the GET calls of api/http.yaml for another handler of the gateway. The context of
// a call has its caller, and the guard admits and records the call like any other.
type Calls struct {
	handler http.Handler
}

// Get makes a call. It returns the status and the JSON of the answer, or of an error. An answer
// with more than limit bytes is an error.
func (c Calls) Get(ctx context.Context, at *url.URL, limit int) (status int, body []byte) {
	a := c.serve(ctx, at, limit)
	if a.exceeded {
		err := fault.New(fault.Invalid, fault.ReasonTooLarge, "the answer has more than %d bytes: set a lower pageSize", limit)
		return rpc.HTTPStatus(err.Kind), ErrorJSON(err)
	}
	return a.status, bytes.TrimSpace(a.body.Bytes())
}

// Pattern returns the pattern of the call that Get makes for a URL, such as
// /v1/executors/{id=*}; "" if there is no such call.
func (c Calls) Pattern(at *url.URL) (pattern string) {
	c.serve(context.WithValue(context.Background(), patternKey{}, &pattern), at, 0)
	return pattern
}

func (c Calls) serve(ctx context.Context, at *url.URL, limit int) *buffered {
	r := &http.Request{Method: http.MethodGet, URL: at, Header: http.Header{}, Body: http.NoBody}
	a := &buffered{header: http.Header{}, status: http.StatusOK, limit: limit}
	c.handler.ServeHTTP(a, r.WithContext(ctx))
	return a
}

// buffered is an answer in memory.
type buffered struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	limit    int
	exceeded bool
}

// Header implements http.ResponseWriter.
func (a *buffered) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *buffered) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter. It discards an answer beyond the limit.
func (a *buffered) Write(b []byte) (int, error) {
	a.exceeded = a.exceeded || a.body.Len()+len(b) > a.limit
	if !a.exceeded {
		a.body.Write(b)
	}
	return len(b), nil
}

// patternKey is the key of the pattern that Pattern looks for.
type patternKey struct{}

// onlyPattern stores the pattern of a request of Pattern instead of making the call.
func onlyPattern(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		if found, ok := r.Context().Value(patternKey{}).(*string); ok {
			pattern, _ := runtime.HTTPPattern(r.Context())
			*found = pattern.String()
			return
		}
		next(w, r, params)
	}
}
