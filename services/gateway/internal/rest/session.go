package rest

import (
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// maxSession is the maximum size of a request for a session, in bytes. A cookie has at most a
// quarter of it, so a token that is too long for a cookie gets the error that says so.
const maxSession = 16 << 10

// sessions returns the handler of sessions of browsers. A session is a cookie with a bearer
// token, and the gateway stores nothing.
func sessions(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /session", func(w http.ResponseWriter, r *http.Request) { createSession(o, w, r) })
	mux.HandleFunc("DELETE /session", func(w http.ResponseWriter, r *http.Request) {
		for _, cookie := range o.Guard.DeleteSession(r) {
			http.SetCookie(w, cookie)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}\n") //nolint:errcheck // it fails only on a closed connection
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { noRoute(w, r, http.StatusMethodNotAllowed) })
	return noBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := OnlyParameters(r.URL.Query()); err != nil {
			WriteError(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// createSession sets the cookie with the token in the body, and answers as GetCaller does for
// the identity of the token.
func createSession(o Options, w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > maxSession {
		WriteStatus(w, http.StatusRequestEntityTooLarge, fault.New(fault.Invalid, fault.ReasonTooLarge,
			"the body is larger than %d bytes", maxSession))
		return
	}
	request, json := &berthv1.Session{}, newJSON()
	if err := json.NewDecoder(r.Body).Decode(request); err != nil && !errors.Is(err, io.EOF) {
		WriteError(w, status.Error(codes.InvalidArgument, err.Error()))
		return
	}
	ctx, cookie, err := o.Guard.CreateSession(r, request.GetToken())
	if err != nil {
		WriteError(w, err)
		return
	}
	caller, err := o.Callers.GetCaller(ctx, &berthv1.GetCallerRequest{})
	if err != nil {
		WriteError(w, err)
		return
	}
	text, err := json.Marshal(caller)
	if err != nil {
		WriteError(w, err)
		return
	}
	http.SetCookie(w, cookie)
	w.Header().Set("Content-Type", "application/json")
	w.Write(text) //nolint:errcheck // it fails only on a closed connection
}
