package process

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"berth.dev/api/fault"
)

// Probe answers a question about the process: nil is yes, an error says in a
// sentence why not.
type Probe func() error

// Leadership is what /leaderz tells beside yes or no.
type Leadership struct {
	// Service and Replica are the process's own.
	Service string `json:"service,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Leader is who leads, where it is reached, in which term and since when by its
	// own clock; empty while nobody does.
	Leader  string     `json:"leader,omitempty"`
	Address string     `json:"address,omitempty"`
	Term    int64      `json:"term,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Renewed is when the leader last renewed its leadership; it alone knows.
	Renewed *time.Time `json:"renewed,omitempty"`
	// Revision is what this replica has followed etcd to, and Behind how many
	// revisions are missing; absent where etcd does not answer.
	Revision int64  `json:"revision,omitempty"`
	Behind   *int64 `json:"behind,omitempty"`
}

// Leading says whether this process is the serving leader, an error why not, and
// tells of the leadership of its service.
type Leading func(ctx context.Context) (Leadership, error)

// OpsHandler serves what operators and load balancers ask of a process, each
// answer a JSON object:
//
//	/healthz  200 when alive() is nil: the process is of use, and need not be started again
//	/readyz   200 when ready() is nil: its view is current
//	/leaderz  200 when leading() has no error: it is the serving leader
//	/metrics  the metrics, in Prometheus' text form
//
// A no is 503 with the reason. A nil alive or ready always holds; a nil leading means
// that the process has no leader to be, and answers 404.
func OpsHandler(alive, ready Probe, leading Leading, metrics *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "alive", ask(alive)) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ready", ask(ready)) })
	mux.HandleFunc("GET /leaderz", func(w http.ResponseWriter, r *http.Request) {
		if leading == nil {
			writeJSON(w, http.StatusNotFound, leadingAnswer{Reason: "this process elects no leader"})
			return
		}
		told, no := leading(r.Context())
		if no != nil {
			writeJSON(w, http.StatusServiceUnavailable, leadingAnswer{false, fault.Of(no).Message, told})
			return
		}
		writeJSON(w, http.StatusOK, leadingAnswer{true, "", told})
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

// leadingAnswer is what /leaderz answers.
type leadingAnswer struct {
	Leading bool   `json:"leading"`
	Reason  string `json:"reason,omitempty"`
	Leadership
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
