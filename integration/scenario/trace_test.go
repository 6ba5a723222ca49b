package scenario

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// traceID is the trace of the caller. caller is the span of the caller's call.
const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	caller      = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + caller + "-01"
)

// startTraced starts a fleet that traces only requests that already have a trace. All spans
// therefore belong to one request.
func startTraced(t *testing.T, c *collector) *world {
	t.Helper()
	return start(t, fleet.Config{LogLevel: "debug", Flags: map[string][]string{
		"":      {"--otlp-endpoint", c.address, "--trace-ratio", "0"},
		"agent": {"--otlp-endpoint", "http://" + c.address, "--trace-ratio", "0"},
	}})
}

// The whole life of a reservation is one trace, from its request to its running workers.
// The trace includes all processes and a change of the leader.
func TestTraceOverLeaderChange(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	w := startTraced(t, c)
	r := w.upsertTraced(shell("traced", "s", 3, "sleep 1000"))
	c.await(t, named("reservation queued"))

	// There is no capacity yet. The leader that accepted the reservation is killed, and the
	// other replica becomes the leader.
	old, term := w.leader(model.ServiceRegistry)
	old.Kill()
	next, _ := w.nextLeader(model.ServiceRegistry, old, term)
	w.restart(old)
	w.startAgents(fleet.Agent{ID: "host", Slots: 4, Allow: []string{"/bin/sh"}})
	w.awaitWorkers("traced", berthv1.Event_WORKER_RUNNING, 3)
	w.cancel(r)
	w.await(r, berthv1.Reservation_CANCELLED)
	w.quiesce()

	spans := c.await(t, append(took("0", "1", "2", "3"),
		named("worker evicted"), named("berth.control.v1.Executor/StopTask"), everyService, twoRegistries,
		// A cycle granted the lease, and a dispatch created the task. The steps have links to the
		// cycle, the dispatch and the new term.
		linked("reservation leased", "call", "run scheduling cycle"),
		linked("worker assigned", "call", "berth.control.v1.Dispatch/CreateAssignmentTasks"),
		linked("reservation assigned", "term", "lead registry"),
	)...)
	oneTrace(t, spans)
	w.checkEventTrace("traced")
	w.logsAreOf(next.LogFile())
}

// If a worker cannot be started, its requeue is part of the same trace.
func TestTraceOfRequeue(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	w := startTraced(t, c)
	// The executor with the newer generation is chosen first.
	w.startAgents(
		fleet.Agent{ID: "picky", Slots: 4, Allow: []string{"/bin/true"}, Generation: 2},
		fleet.Agent{ID: "host", Slots: 4, Allow: []string{"/bin/sleep", "/bin/true"}, Generation: 1},
	)
	w.awaitReady(2)
	web := newWeb(t, w.fleet.Gateway())
	answer := web.open("PUT", "/v1/jobs/again/stages/s/reservation",
		`{"count": 1, "maxAttempts": 2, "task": {"command": "sleep", "args": ["1000"]}}`, "traceparent", traceparent)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the request was answered %s", answer.Status)
	}
	w.awaitWorkers("again", berthv1.Event_WORKER_RUNNING, 1)
	if _, err := w.client.CancelJob(w.ctx, "again"); err != nil {
		t.Fatal(err)
	}
	w.quiesce()

	spans := c.await(t, append(took("0", "1", "2", "3", "3'"), everyService, func(spans []span) string {
		uids := map[string]bool{}
		for _, s := range spans {
			if s.GetName() == "reservation leased" {
				uids[s.attributes["berth.uid"]] = true
			}
		}
		if len(uids) < 2 {
			return "no lease of the requeued version"
		}
		return ""
	}, func(spans []span) string {
		if !slices.ContainsFunc(spans, func(s span) bool {
			return s.GetName() == "HTTP PUT" && hex.EncodeToString(s.GetParentSpanId()) == caller
		}) {
			return "no span of the HTTP call is a child of the caller's span"
		}
		return ""
	})...)
	oneTrace(t, spans)
	w.checkEventTrace("again")

	// A reservation without faults is drawn in the guide.
	answer = web.open("PUT", "/v1/jobs/drawn/stages/s/reservation",
		`{"count": 2, "constraints": {"spread": {"by": "executor", "max": 1}}, "task": {"command": "true"}}`,
		"traceparent", "00-"+drawnID+"-"+caller+"-01")
	answer.Body.Close()
	checkPicture(t, c)
}

// If tracing is not configured, no span is sent, and events have no trace.
func TestTracingIsOff(t *testing.T) {
	c := startCollector(t)
	// The standard environment variable alone does not enable tracing.
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.address)
	w := start(t, fleet.Config{})
	w.startAgents(fleet.Agent{ID: "host", Slots: 1, Allow: []string{"/bin/true"}})
	r := w.upsert(&berthv1.Reservation{Job: "plain", Stage: "s", Count: 1, Task: &berthv1.Task{Command: "true"}})
	w.await(r, berthv1.Reservation_COMPLETED)
	w.awaitEvents("plain", func(e *berthv1.Event) bool {
		if e.TraceId != nil {
			t.Errorf("an event contains a trace: %v", e)
		}
		return e.GetKind() == berthv1.Event_RESERVATION_COMPLETED
	})
	w.quiesce()
	if spans := c.all(); len(spans) > 0 {
		t.Errorf("%d spans were sent, the first: %v", len(spans), spans[0])
	}
}

// upsertTraced sends a request as a job service that has a trace.
func (w *world) upsertTraced(r *berthv1.Reservation) *berthv1.Reservation {
	w.Helper()
	own, err := client.Dial(w.fleet.Gateways(), client.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(noop.NewTracerProvider()), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	if err != nil {
		w.Fatal(err)
	}
	defer own.Close()
	ctx := propagation.TraceContext{}.Extract(w.ctx, propagation.MapCarrier{"traceparent": traceparent})
	answer, err := own.Reserve(ctx, r)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

// check returns what is missing in the spans, or an empty string.
type check func([]span) string

// await waits until all checks pass and returns all spans.
func (c *collector) await(t *testing.T, checks ...check) []span {
	t.Helper()
	var spans []span
	until(t, func() string {
		spans = c.all()
		for _, check := range checks {
			if missing := check(spans); missing != "" {
				return missing
			}
		}
		return ""
	})
	return spans
}

func named(name string) check {
	return func(spans []span) string {
		if slices.ContainsFunc(spans, func(s span) bool { return s.GetName() == name }) {
			return ""
		}
		return "no span " + name
	}
}

// everyService checks that the trace has spans of every service.
func everyService(spans []span) string {
	seen := map[string]bool{}
	for _, s := range spans {
		if s.trace() == traceID {
			seen[s.service] = true
		}
	}
	for _, service := range []string{"registry", "executor-state", "assigner", "gateway", "agent"} {
		if !seen["berth-"+service] {
			return "no span of " + service
		}
	}
	return ""
}

// twoRegistries checks that steps of the reservation come from two replicas of the
// registry.
func twoRegistries(spans []span) string {
	replicas := map[string]bool{}
	for _, s := range spans {
		if s.service == "berth-registry" && s.attributes["berth.event"] != "" {
			replicas[s.replica] = true
		}
	}
	if len(replicas) != 2 {
		return fmt.Sprintf("steps of the registry: %v", slices.Collect(maps.Keys(replicas)))
	}
	return ""
}

// took returns a check for each step: some span of the step must have a duration, a
// reservation and a link.
func took(steps ...string) []check {
	var checks []check
	for _, step := range steps {
		checks = append(checks, func(spans []span) string {
			if slices.ContainsFunc(spans, func(s span) bool {
				return s.attributes["berth.step"] == step && s.attributes["berth.uid"] != "" &&
					s.GetEndTimeUnixNano() >= s.GetStartTimeUnixNano() && len(s.GetLinks()) > 0
			}) {
				return ""
			}
			return "no span of step (" + step + ")"
		})
	}
	return checks
}

// linked returns a check for a link of the given kind from one span to another.
func linked(from, kind, to string) check {
	return func(spans []span) string {
		for _, s := range spans {
			for _, link := range s.GetLinks() {
				if s.GetName() == from && texts(link.GetAttributes())["berth.link"] == kind &&
					slices.ContainsFunc(spans, func(other span) bool {
						return other.GetName() == to && bytes.Equal(other.GetSpanId(), link.GetSpanId())
					}) {
					return ""
				}
			}
		}
		return fmt.Sprintf("no link (%s) from %q to %q", kind, from, to)
	}
}

// oneTrace fails if a span is not part of the caller's trace. Only the spans of terms have
// traces of their own, and they must have a link.
func oneTrace(t *testing.T, spans []span) {
	t.Helper()
	for _, s := range spans {
		if !strings.HasPrefix(s.GetName(), "lead ") {
			if s.trace() != traceID {
				t.Errorf("%s of %s belongs to trace %s", s.GetName(), s.replica, s.trace())
			}
			continue
		}
		if len(s.GetLinks()) != 1 || hex.EncodeToString(s.GetLinks()[0].GetTraceId()) != traceID {
			t.Errorf("%s has no link to the trace: %v", s.GetName(), s.GetLinks())
		}
	}
}

// checkEventTrace checks over REST that every event of a job names the trace.
func (w *world) checkEventTrace(job string) {
	w.Helper()
	web := newWeb(w.T, w.fleet.Gateway())
	answer := web.open("GET", "/v1/jobs/"+job+"/events", "")
	defer answer.Body.Close()
	n := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if len(lines.Bytes()) == 0 {
			continue
		}
		event := &berthv1.Event{}
		if err := protojson.Unmarshal(lines.Bytes(), event); err != nil {
			w.Fatalf("%s: %v", lines.Text(), err)
		}
		if n++; event.GetTraceId() != traceID {
			w.Errorf("an event contains the trace %q: %s", event.GetTraceId(), lines.Text())
		}
		if k := event.GetKind(); k == berthv1.Event_RESERVATION_CANCELLED {
			break
		}
	}
	if n < 5 {
		w.Errorf("only %d events", n)
	}
}

// logsAreOf fails if the log file has no line with the trace.
func (w *world) logsAreOf(file string) {
	w.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	if !strings.Contains(string(text), "trace_id="+traceID) {
		w.Errorf("%s does not contain the trace", file)
	}
}
