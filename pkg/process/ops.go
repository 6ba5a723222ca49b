package process

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"

	"berth.dev/pkg/fault"
)

// Probe answers a question about the process: nil is yes, an error says in a
// sentence why not.
type Probe func() error

// OpsHandler serves what operators and load balancers ask of a process, each
// answer a JSON object:
//
//	/healthz  200: the process is alive
//	/readyz   200 when ready() is nil: its view is current
//	/leaderz  200 when leading() is nil: it is the serving leader
//	/metrics  the figures, in Prometheus' text form
//
// A no is 503 with the reason. A nil ready always holds; a nil leading means
// that the process has no leader to be, and answers 404.
func OpsHandler(ready, leading Probe, metrics *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "alive", nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ready", ask(ready)) })
	mux.HandleFunc("GET /leaderz", func(w http.ResponseWriter, _ *http.Request) {
		if leading == nil {
			writeJSON(w, http.StatusNotFound, map[string]any{"leading": false, "reason": "this process elects no leader"})
			return
		}
		answer(w, "leading", leading())
	})
	mux.Handle("GET /metrics", metrics.Handler())
	return mux
}

// Profiled serves Go's profiles below /debug/pprof/ beside what a handler of
// operations serves, if they are on. They tell much and cost something, so they
// are off unless an operator turns them on.
func Profiled(on bool, ops http.Handler) http.Handler {
	if !on {
		return ops
	}
	mux := http.NewServeMux()
	mux.Handle("/", ops)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// Running is the Probe of a process that is ready while it is not stopping.
func Running(ctx context.Context) Probe {
	return func() error {
		if ctx.Err() != nil {
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "stopping")
		}
		return nil
	}
}

func ask(p Probe) error {
	if p == nil {
		return nil
	}
	return p()
}

func answer(w http.ResponseWriter, question string, no error) {
	if no == nil {
		writeJSON(w, http.StatusOK, map[string]any{question: true})
		return
	}
	writeJSON(w, http.StatusServiceUnavailable, map[string]any{question: false, "reason": fault.Of(no).Message})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the reader has gone: there is no one to tell
}
