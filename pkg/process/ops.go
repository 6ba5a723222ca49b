package process

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"berth.dev/api/fault"
)

// Probe checks one condition of the process. It returns nil if the condition is true, and
// otherwise the reason why it is false.
type Probe func() error

// Leadership contains the details that /leaderz returns.
type Leadership struct {
	// Service and Replica identify this process.
	Service string `json:"service,omitempty"`
	Replica string `json:"replica,omitempty"`
	// Leader is the ID of the replica that leads. Address and Term are its address and its
	// term, and Since is the start of the term by its own clock. All four are empty if no
	// replica leads.
	Leader  string     `json:"leader,omitempty"`
	Address string     `json:"address,omitempty"`
	Term    int64      `json:"term,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// Renewed is the time of the last renewal of the leadership. Only the leader reports it.
	Renewed *time.Time `json:"renewed,omitempty"`
	// Revision is the etcd revision that this replica has reached. Behind is the number of
	// revisions that this replica has not reached yet; it is absent if etcd does not answer, or if
	// this replica has no view yet.
	Revision int64  `json:"revision,omitempty"`
	Behind   *int64 `json:"behind,omitempty"`
}

// Leading returns the leadership of the process's service. If this process is not the
// serving leader, the error is the reason.
type Leading func(ctx context.Context) (Leadership, error)

// OpsHandler returns a handler for the requests of operators and load balancers. Every
// answer except the metrics is a JSON object:
//
//	/healthz  200 if alive() is nil: the process needs no restart
//	/readyz   200 if ready() is nil: its view is current
//	/leaderz  200 if leading() has no error: it is the serving leader
//	/metrics  the metrics, in Prometheus' text format
//
// Otherwise the answer is 503 with the reason. If alive or ready is nil, its condition is
// always true. If leading is nil, the process takes part in no election, and /leaderz
// answers 404.
func OpsHandler(alive, ready Probe, leading Leading, metrics *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "alive", ask(alive)) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "ready", ask(ready)) })
	mux.HandleFunc("GET /leaderz", func(w http.ResponseWriter, r *http.Request) {
		if leading == nil {
			writeJSON(w, http.StatusNotFound, leadingAnswer{Reason: "this process takes part in no election"})
			return
		}
		leadership, err := leading(r.Context())
		if err != nil {
			writeJSON(w, http.StatusServiceUnavailable, leadingAnswer{false, fault.Of(err).Message, leadership})
			return
		}
		writeJSON(w, http.StatusOK, leadingAnswer{true, "", leadership})
	})
	mux.Handle("GET /metrics", metrics.Handler())
	return mux
}

// Profiled adds Go's profiles under /debug/pprof/ to the handler of OpsHandler if on is
// true. Profiles reveal internals and use CPU time, so an operator must enable them.
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

// Running returns the Probe of a process that is ready until ctx ends.
func Running(ctx context.Context) Probe {
	return func() error {
		if ctx.Err() != nil {
			return fault.New(fault.Unavailable, fault.ReasonUnavailable, "stopping")
		}
		return nil
	}
}

// leadingAnswer is the answer of /leaderz.
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

func answer(w http.ResponseWriter, question string, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, map[string]any{question: true})
		return
	}
	writeJSON(w, http.StatusServiceUnavailable, map[string]any{question: false, "reason": fault.Of(err).Message})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the client has disconnected
}
