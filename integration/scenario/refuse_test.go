package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/fleet"
)

// Invalid requests fail with an error that names the field. The errors are the same over
// REST and gRPC, and the requests change nothing.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startSim("sim", 1, 1)
	w.awaitReady(1)
	w.await(w.upsert(&berthv1.Reservation{Job: "good", Stage: "s", Count: 1}), berthv1.Reservation_ACTIVE)
	w.awaitWorkers("good", berthv1.Event_WORKER_RUNNING, 1)
	w.awaitRecorded("good")
	w.quiesce()
	before := w.keys(space.Prefix())

	long := strings.Repeat("x", 129)
	for _, c := range []struct {
		name string
		// If path is set, it replaces the path of job bad and stage s.
		path, body    string
		reason, field string
	}{
		{name: "nothing asked", body: `{}`, reason: "REQUIRED", field: "workers"},
		{name: "no workers", body: `{"workers": []}`, reason: "REQUIRED", field: "workers"},
		{name: "count and workers", body: `{"count": 2, "workers": [{"index": 0, "number": 1}]}`, reason: "INVALID",
			field: "count"},
		{name: "negative count", body: `{"count": -1}`, reason: "INVALID", field: "count"},
		{name: "worker twice", body: `{"workers": [{"index": 4, "number": 1}, {"index": 4, "number": 2}]}`,
			reason: "DUPLICATE", field: "workers[1].index"},
		{name: "negative index", body: `{"workers": [{"index": -4, "number": 1}]}`, reason: "INVALID",
			field: "workers[0].index"},
		{name: "negative resources", body: `{"count": 1, "constraints": {"resources": {"cpu": "-1"}}}`, reason: "INVALID",
			field: "constraints.resources.cpu"},
		{name: "bad resource", body: `{"count": 1, "constraints": {"resources": {"a/b": 1}}}`, reason: "BAD_NAME",
			field: "constraints.resources.a/b"},
		{name: "bad SKU", body: `{"count": 1, "constraints": {"sku": "a b"}}`, reason: "BAD_NAME", field: "constraints.sku"},
		{name: "negative timeout", body: `{"count": 1, "queueTimeout": "-1s"}`, reason: "INVALID", field: "queueTimeout"},
		{name: "negative grace", body: `{"count": 1, "task": {"stopGrace": "-1s"}}`, reason: "INVALID",
			field: "task.stopGrace"},
		{name: "too many attempts", body: `{"count": 1, "maxAttempts": 101}`, reason: "TOO_LARGE", field: "maxAttempts"},
		{name: "no attempt", body: `{"count": 1, "maxAttempts": 0}`, reason: "INVALID", field: "maxAttempts"},
		{name: "target below count", body: `{"count": 2, "targetSize": 1}`, reason: "INVALID", field: "targetSize"},
		{name: "unknown number of an enum", body: `{"count": 1, "batch": 77}`, reason: "INVALID", field: "batch"},
		{name: "bad request id", body: `{"count": 1, "requestId": "a b"}`, reason: "BAD_NAME", field: "requestId"},
		{name: "name too long", path: "/v1/jobs/" + long + "/stages/s/reservation", body: `{"count": 1}`, reason: "BAD_NAME",
			field: "job"},
		{name: "leading dot", path: "/v1/jobs/.bad/stages/s/reservation", body: `{"count": 1}`, reason: "BAD_NAME",
			field: "job"},
		{name: "slash in the job", path: "/v1/jobs/a%2Fb/stages/s/reservation", body: `{"count": 1}`, reason: "BAD_NAME",
			field: "job"},
		{name: "slash in the stage", path: "/v1/jobs/bad/stages/a%2Fb/reservation", body: `{"count": 1}`, reason: "BAD_NAME",
			field: "stage"},
		{name: "space in the name", path: "/v1/jobs/bad/stages/s/reservations/a%20b", body: `{"count": 1}`,
			reason: "BAD_NAME", field: "name"},
		{name: "percent in the name", path: "/v1/jobs/bad/stages/s/reservations/a%2541", body: `{"count": 1}`,
			reason: "BAD_NAME", field: "name"},
		{name: "unknown hold", body: `{"count": 1, "hold": 77}`, reason: "INVALID", field: "hold"},
		{name: "holdTimeout without hold", body: `{"count": 1, "hold": "NONE", "holdTimeout": "1s"}`, reason: "INVALID",
			field: "holdTimeout"},
		{name: "negative holdTimeout", body: `{"count": 1, "hold": "HOLD", "holdTimeout": "-1s"}`, reason: "INVALID",
			field: "holdTimeout"},
		{name: "best-effort hold", body: `{"count": 1, "hold": "HOLD", "batch": "BEST_EFFORT"}`, reason: "INVALID",
			field: "batch"},
		{name: "no begin of the lifetime", body: `{"count": 1, "lifetime": {"for": "1s"}}`, reason: "INVALID",
			field: "lifetime.from"},
		{name: "unknown begin of the lifetime", body: `{"count": 1, "lifetime": {"for": "1s", "from": "STARTED"}}`,
			reason: "INVALID", field: "lifetime.from"},
		{name: "negative lifetime", body: `{"count": 1, "lifetime": {"for": "-1s", "from": "LIVE"}}`, reason: "INVALID",
			field: "lifetime.for"},
		{name: "no lifetime", body: `{"count": 1, "lifetime": {"from": "CREATED"}}`, reason: "INVALID",
			field: "lifetime.for"},
		{name: "expireAt has passed", body: `{"count": 1, "expireAt": "2001-01-01T00:00:00Z"}`, reason: "INVALID",
			field: "expireAt"},
		{name: "unknown restart", body: `{"count": 1, "restart": "SOMETIMES"}`, reason: "INVALID", field: "restart"},
		{name: "empty restart", body: `{"count": 1, "restart": ""}`, reason: "INVALID", field: "restart"},
		{name: "unknown onWorkerLoss", body: `{"count": 1, "onWorkerLoss": "x"}`, reason: "INVALID",
			field: "onWorkerLoss"},
		{name: "unknown requeue", body: `{"count": 1, "requeue": "LAST"}`, reason: "INVALID", field: "requeue"},
		{name: "negative maxRestarts", body: `{"count": 1, "maxRestarts": -1}`, reason: "INVALID", field: "maxRestarts"},
		{name: "too many restarts", body: `{"count": 1, "maxRestarts": 101}`, reason: "TOO_LARGE", field: "maxRestarts"},
		{name: "negative startTimeout", body: `{"count": 1, "maxRestarts": 1, "task": {"startTimeout": "-1s"}}`,
			reason: "INVALID", field: "task.startTimeout"},
		{name: "startTimeout over a day", body: `{"count": 1, "task": {"startTimeout": "86401s"}}`, reason: "TOO_LARGE",
			field: "task.startTimeout"},
		{name: "unknown readiness", body: `{"count": 1, "task": {"readiness": 77}}`, reason: "INVALID",
			field: "task.readiness"},
		{name: "NUL byte in the command", body: `{"count": 1, "task": {"command": "run\u0000"}}`, reason: "INVALID",
			field: "task.command"},
		{name: "NUL byte in an argument", body: `{"count": 1, "task": {"command": "x", "args": ["a", "\u0000"]}}`,
			reason: "INVALID", field: "task.args[1]"},
		{name: "long argument", body: `{"count": 1, "task": {"command": "x", "args": ["` + strings.Repeat("x", 1<<17) + `"]}}`,
			reason: "TOO_LARGE", field: "task.args[0]"},
		{name: "expiry before the begin",
			body:   `{"count": 1, "notBefore": "2999-01-01T00:00:00Z", "expireAt": "2998-01-01T00:00:00Z"}`,
			reason: "INVALID", field: "expireAt"},
		{name: "lifetime before the begin",
			body:   `{"count": 1, "notBefore": "2999-01-01T00:00:00Z", "lifetime": {"for": "3600s", "from": "CREATED"}}`,
			reason: "INVALID", field: "lifetime.for"},
		{name: "volume of no requested resource", body: `{"count": 1, "volume": {"resource": "disk"}}`, reason: "INVALID",
			field: "volume.resource"},
		{name: "volume of nothing",
			body:   `{"count": 1, "constraints": {"resources": {"disk": 0}}, "volume": {"resource": "disk"}}`,
			reason: "INVALID", field: "volume.resource"},
		{name: "unknown onLoss of the volume", body: `{"count": 1, "volume": {"resource": "slots", "onLoss": "MOVE"}}`,
			reason: "INVALID", field: "volume.onLoss"},
		{name: "negative keepFor of the volume", body: `{"count": 1, "volume": {"resource": "slots", "keepFor": "-1s"}}`,
			reason: "INVALID", field: "volume.keepFor"},
		{name: "too many volumes", body: `{"count": 4097, "volume": {"resource": "slots"}}`, reason: "TOO_LARGE",
			field: "count"},
		{name: "cells with a volume", body: `{"count": 1, "constraints": {"cells": true}, "volume": {"resource": "slots"}}`,
			reason: "UNSUPPORTED", field: "volume"},
		{name: "cells with spread",
			body:   `{"count": 1, "constraints": {"cells": true, "spread": {"by": "executor", "max": 1}}}`,
			reason: "UNSUPPORTED", field: "constraints.spread"},
		{name: "cells with sameShape", body: `{"count": 1, "constraints": {"cells": true, "sameShape": true}}`,
			reason: "UNSUPPORTED", field: "constraints.sameShape"},
		{name: "cells with pack", body: `{"count": 1, "constraints": {"cells": true, "pack": true}}`,
			reason: "UNSUPPORTED", field: "constraints.pack"},
		{name: "best effort in cells", body: `{"count": 1, "constraints": {"cells": true}, "batch": "BEST_EFFORT"}`,
			reason: "INVALID", field: "batch"},
		{name: "near", body: `{"count": 1, "near": "x"}`, reason: "UNSUPPORTED", field: "near"},
		{name: "apart", body: `{"count": 1, "apart": "x"}`, reason: "UNSUPPORTED", field: "apart"},
		{name: "executors", body: `{"count": 1, "executors": ["sim-0"]}`, reason: "UNSUPPORTED", field: "executors"},
		{name: "bad pool", body: `{"count": 1, "constraints": {"pools": ["a b"]}}`, reason: "BAD_NAME",
			field: "constraints.pools[0]"},
		{name: "bad role", body: `{"count": 1, "constraints": {"role": "a b"}}`, reason: "BAD_NAME",
			field: "constraints.role"},
		{name: "together as far as it fits", body: `{"count": 2, "start": "TOGETHER", "batch": "BEST_EFFORT"}`,
			reason: "INVALID", field: "batch"},
		{name: "unknown start", body: `{"count": 1, "start": 77}`, reason: "INVALID", field: "start"},
		{name: "unknown onAssignmentFailure", body: `{"count": 1, "onAssignmentFailure": 77}`, reason: "INVALID",
			field: "onAssignmentFailure"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.path
			if path == "" {
				path = "/v1/jobs/bad/stages/s/reservation"
			}
			web := newWeb(t, w.fleet.Gateway())
			if status, reason, field := web.refused("PUT", path, c.body); status != http.StatusBadRequest ||
				reason != c.reason || field != c.field {
				t.Errorf("REST: %d %s %q, want 400 %s %q", status, reason, field, c.reason, c.field)
			}
			if c.path != "" {
				return
			}
			r := &berthv1.Reservation{}
			if err := protojson.Unmarshal([]byte(c.body), r); err != nil {
				t.Fatal(err)
			}
			r.Job, r.Stage = "bad", "s"
			_, err := w.client.Reserve(w.ctx, r)
			refusal(t, err, fault.Invalid, fault.Reason(c.reason), c.field)
		})
	}
	t.Run("names over gRPC", func(t *testing.T) {
		for _, c := range []struct {
			job, stage, name, field string
			reason                  fault.Reason
		}{
			{"a/b", "s", "", "job", fault.ReasonBadName},
			{"", "s", "", "job", fault.ReasonRequired},
			{long, "s", "", "job", fault.ReasonBadName},
			{"bad", ".s", "", "stage", fault.ReasonBadName},
			{"bad", "", "", "stage", fault.ReasonRequired},
			{"bad", "s", "-n", "name", fault.ReasonBadName},
		} {
			_, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: c.job, Stage: c.stage, Name: c.name, Count: 1})
			refusal(t, err, fault.Invalid, c.reason, c.field)
		}
	})
	t.Run("JSON", func(t *testing.T) {
		web := newWeb(t, w.fleet.Gateway())
		const path = "/v1/jobs/bad/stages/s/reservation"
		for _, c := range []struct {
			name, body string
			status     int
			reason     string
			field      string
		}{
			{"unknown key", `{"count": 1, "replicas": 3}`, 400, "INVALID", "replicas"},
			{"unknown key inside", `{"count": 1, "constraints": {"skew": "x"}}`, 400, "INVALID", "constraints.skew"},
			{"unknown name of an enum", `{"count": 1, "priority": {"class": "URGENT"}}`, 400, "INVALID", "priority.class"},
			{"wrong type", `{"count": "many"}`, 400, "INVALID", "count"},
			{"too large a number", `{"count": 3000000000}`, 400, "INVALID", "count"},
			{"bad duration", `{"count": 1, "queueTimeout": "1 hour"}`, 400, "INVALID", "queueTimeout"},
			{"cut off", `{"count": 1`, 400, "INVALID", ""},
			{"no JSON", `count=1`, 400, "INVALID", ""},
			{"two values", `{"count": 1}{"count": 2}`, 400, "INVALID", ""},
			{"over 1 MiB", `{"count": 1, "labels": {"a": "` + strings.Repeat("x", 1<<20) + `"}}`, 413, "TOO_LARGE", ""},
			{"payload over 64 KiB", `{"count": 1, "task": {"payload": "` + strings.Repeat("AAAA", 22000) + `"}}`, 400,
				"TOO_LARGE", "task.payload"},
			{"another job in the body", `{"count": 1, "job": "other"}`, 400, "INVALID", "job"},
		} {
			t.Run(c.name, func(t *testing.T) {
				if status, reason, field := web.refused("PUT", path, c.body); status != c.status || reason != c.reason ||
					field != c.field {
					t.Errorf("%d %s %q, want %d %s %q", status, reason, field, c.status, c.reason, c.field)
				}
			})
		}
		for _, path := range []string{"/v1/jobs//stages/s/reservation", "/v1/jobs/bad/stages//reservation", "/v1/nothing"} {
			if status, body := web.call("PUT", path, `{"count": 1}`); status != 404 && status != 400 {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
		if status, reason, field := web.refused("GET", "/v1/reservations?stat=QUEUED", ""); status != 400 ||
			reason != "INVALID" || field != "stat" {
			t.Errorf("an unknown parameter: %d %s %q", status, reason, field)
		}
		if status, reason, field := web.refused("GET", "/v1/reservations?pageSize=5000", ""); status != 400 ||
			field != "pageSize" {
			t.Errorf("a page too large: %d %s %q", status, reason, field)
		}
		if status, reason, field := web.refused("GET", "/v1/jobs/good/events?since=x", ""); status != 400 ||
			field != "since" {
			t.Errorf("an invalid cursor: %d %s %q", status, reason, field)
		}
		if status, reason, _ := web.refused("GET", "/v1/jobs/bad/stages/s/reservation", ""); status != 404 ||
			reason != "NOT_FOUND" {
			t.Errorf("an unknown reservation: %d %s", status, reason)
		}
	})
	t.Run("binds", func(t *testing.T) {
		web := newWeb(t, w.fleet.Gateway())
		const path = "/v1/jobs/good/stages/s/reservation:bind"
		for _, c := range []struct {
			name, path, body string
			status           int
			reason, field    string
		}{
			{"of a reservation that is not held", path, `{}`, 409, "NOT_HELD", ""},
			{"of an unknown reservation", "/v1/jobs/bad/stages/s/reservation:bind", `{}`, 404, "NOT_FOUND", ""},
			{"of another version", path, `{"ifEpoch": 1}`, 409, "EPOCH_MISMATCH", ""},
			{"with constraints", path, `{"constraints": {"sku": "x"}}`, 400, "INVALID", "constraints"},
			{"with a negative epoch", path, `{"ifEpoch": -1}`, 400, "INVALID", "ifEpoch"},
			{"with a bad ID", path, `{"requestId": "a b"}`, 400, "BAD_NAME", "requestId"},
			{"with a variable of the agent", path, `{"task": {"env": {"BERTH_X": "1"}}}`, 400, "INVALID", "task.env.BERTH_X"},
			{"without a start timeout", path, `{"task": {"startTimeout": "0s"}}`, 400, "INVALID", "task.startTimeout"},
			{"with a NUL byte", path, `{"task": {"command": "a\u0000"}}`, 400, "INVALID", "task.command"},
			{"with a bad cell", path, `{"pool": "a/b"}`, 400, "BAD_NAME", "pool"},
			{"that keeps the hold and has a task", path, `{"keepHeld": true, "task": {"command": "x"}}`, 400, "INVALID", "task"},
			{"of a bad job", "/v1/jobs/.bad/stages/s/reservation:bind", `{}`, 400, "BAD_NAME", "job"},
		} {
			t.Run(c.name, func(t *testing.T) {
				if status, reason, field := web.refused("POST", c.path, c.body); status != c.status || reason != c.reason ||
					field != c.field {
					t.Errorf("%d %s %q, want %d %s %q", status, reason, field, c.status, c.reason, c.field)
				}
			})
		}
	})
	t.Run("a version that is not the newest", func(t *testing.T) {
		_, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "good", Stage: "s", Count: 2, IfEpoch: proto.Int64(1)})
		refusal(t, err, fault.Conflict, fault.ReasonEpochMismatch, "")
		_, err = w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "good", Stage: "s", Name: "again",
			Workers: []*berthv1.WorkerID{{Index: 0, Number: 1}}})
		refusal(t, err, fault.Conflict, fault.ReasonWorkerIDUsed, "")
	})
	t.Run("command line", func(t *testing.T) { commandLine(t, w) })

	w.unchanged(before)
}

// commandLine checks the exit codes and messages of berth commands.
func commandLine(t *testing.T, w *world) {
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	const jobs = "job: bad\nstage: one\ncount: 1\n---\njob: bad\nstage: two\ncount: 1\nreplicas: 3\n"
	if err := os.WriteFile(file, []byte(jobs), 0o600); err != nil {
		t.Fatal(err)
	}
	refusedFile := filepath.Join(t.TempDir(), "refused.yaml")
	if err := os.WriteFile(refusedFile, []byte("job: bad\nstage: one\ncount: 60000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	here := w.fleet.Gateway()
	for _, c := range []struct {
		name, gateway string
		args          []string
		exit          int
		says          []string
	}{
		{"unknown key", here, []string{"apply", "-f", file}, rpc.ExitUsage, []string{"replicas", "document 2"}},
		{"refused by the gateway", here, []string{"apply", "-f", refusedFile}, rpc.ExitUsage,
			[]string{"count", "document 1", "TOO_LARGE"}},
		{"unknown flag", here, []string{"get", "reservations", "--colour"}, rpc.ExitUsage, []string{"--colour"}},
		{"unknown flag of a process", here, []string{"registry", "--colour"}, rpc.ExitUsage, []string{"--colour"}},
		{"not there", here, []string{"get", "reservations", "bad/one/main"}, rpc.ExitNotFound,
			[]string{"there is no job bad", "NOT_FOUND"}},
		{"no gateway", "127.0.0.1:1", []string{"get", "reservations", "--timeout", "300ms"}, rpc.ExitUnavailable,
			[]string{"127.0.0.1:1"}},
		{"done", here, []string{"get", "reservations", "good/s"}, rpc.ExitDone, []string{"ACTIVE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, said := berth(t, w.ctx, w.binary, []string{"BERTH_GATEWAY=" + c.gateway}, c.args...)
			if exit != c.exit {
				t.Errorf("exit code %d, want %d: %s", exit, c.exit, said)
			}
			for _, words := range c.says {
				if !strings.Contains(said, words) {
					t.Errorf("no %q in: %s", words, said)
				}
			}
		})
	}
}

// berth runs the program and returns its exit code and output.
func berth(t *testing.T, ctx context.Context, binary string, env []string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(fmt.Errorf("berth %v: %w", args, err))
	}
	return cmd.ProcessState.ExitCode(), string(said)
}
