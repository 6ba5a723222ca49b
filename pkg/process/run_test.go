package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
)

func TestTheFirstFailureStopsAll(t *testing.T) {
	g := process.NewGroup(t.Context())
	cause := errors.New("broken")
	g.Go("done early", func(context.Context) error { return nil })
	g.Go("waits", func(ctx context.Context) error { <-ctx.Done(); return errors.New("was stopped") })
	g.Go("fails", func(context.Context) error { return cause })
	<-g.Stopping()
	if err := g.Wait(); !errors.Is(err, cause) || err.Error() != "fails: broken" {
		t.Errorf("got %v", err)
	}
}

func TestAnOrderlyStopIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := process.NewGroup(ctx)
	g.Go("waits", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestStopStepsRunInOrderDespiteErrors(t *testing.T) {
	var done []string
	step := func(name string, err error) process.Step {
		return process.Step{Name: name, Do: func(context.Context) error { done = append(done, name); return err }}
	}
	hang := process.Step{Name: "hang", Do: func(ctx context.Context) error {
		<-ctx.Done()
		done = append(done, "hang")
		return ctx.Err()
	}}
	process.Stop(quiet, 10*time.Millisecond, step("resign", errors.New("no")), hang, step("close", nil))
	if diff := cmp.Diff([]string{"resign", "hang", "close"}, done); diff != "" {
		t.Error(diff)
	}
}

func TestSIGTERMEndsTheContext(t *testing.T) {
	ctx, stop := process.SignalContext(t.Context())
	defer stop()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the context did not end")
	}
}

func TestOperations(t *testing.T) {
	metrics, err := process.NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	counter, err := metrics.Provider.Meter("berth").Int64Counter("berth_cycles")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 7)
	no := func() error { return fault.New(fault.Unavailable, fault.ReasonUnavailable, "etcd does not answer") }
	yes := func() error { return nil }
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	at := func(second int64) *time.Time { t := time.Unix(second, 0).UTC(); return &t }
	leads := func(context.Context) (process.Leadership, error) {
		return process.Leadership{
			Service: "registry", Replica: "a", Leader: "a", Address: "a:1", Term: 7, Since: at(7), Renewed: at(9), Revision: 8,
			Behind: new(int64),
		}, nil
	}
	follows := func(context.Context) (process.Leadership, error) {
		return process.Leadership{Replica: "b", Revision: 5}, no()
	}
	for _, c := range []struct {
		name    string
		ready   process.Probe
		leading process.Leading
		path    string
		status  int
		body    map[string]any
	}{
		{"alive", no, nil, "/healthz", 200, map[string]any{"alive": true}},
		{"ready", yes, nil, "/readyz", 200, map[string]any{"ready": true}},
		{"always ready", nil, nil, "/readyz", 200, map[string]any{"ready": true}},
		{"not ready", no, nil, "/readyz", 503, map[string]any{"ready": false, "reason": "etcd does not answer"}},
		{"stopping", process.Running(stopped), nil, "/readyz", 503, map[string]any{"ready": false, "reason": "stopping"}},
		{"running", process.Running(t.Context()), nil, "/readyz", 200, map[string]any{"ready": true}},
		{"leads", no, leads, "/leaderz", 200, map[string]any{
			"leading": true, "service": "registry", "replica": "a", "leader": "a", "address": "a:1", "term": 7.0,
			"since": "1970-01-01T00:00:07Z", "renewed": "1970-01-01T00:00:09Z", "revision": 8.0, "behind": 0.0,
		}},
		{"follows", yes, follows, "/leaderz", 503, map[string]any{"leading": false, "reason": "etcd does not answer",
			"replica": "b", "revision": 5.0}},
		{"has no leader", yes, nil, "/leaderz", 404, map[string]any{"leading": false,
			"reason": "this process takes part in no election"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			process.OpsHandler(nil, c.ready, c.leading, metrics).ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
			var body map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.body, body); w.Code != c.status || diff != "" {
				t.Errorf("status %d, body %s", w.Code, diff)
			}
		})
	}
	w := httptest.NewRecorder()
	process.OpsHandler(nil, nil, nil, metrics).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"berth_cycles_total 7", "go_goroutines", "process_open_fds"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// Two services in one process have separate metrics.
func TestRegistriesAreSeparate(t *testing.T) {
	for range 2 {
		if _, err := process.NewMetrics(func() string { return "" }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLogsHaveALevelAndAFormat(t *testing.T) {
	var out bytes.Buffer
	log, err := process.NewLogger(&out, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	var record struct{ Msg, Level string }
	if err := json.Unmarshal(out.Bytes(), &record); err != nil || record.Msg != "loud" || record.Level != "WARN" {
		t.Errorf("logged %s", out.Bytes())
	}
	for _, c := range [][2]string{{"xml", "info"}, {"json", "loud"}} {
		if _, err := process.NewLogger(&out, c[0], c[1]); fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%v: %v", c, err)
		}
	}
}
