package scenario

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/fleet"
)

// cli runs a berth command against the fleet's gateway and returns the output.
func (w *world) cli(input string, args ...string) string {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, w.binary, append(args, "--gateway", "http://"+w.fleet.Gateway(), "--timeout",
		patience.String())...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	if err := cmd.Run(); err != nil {
		w.Fatalf("berth %s: %v: %s", strings.Join(args, " "), err, &out)
	}
	return out.String()
}

// The output of REST and of the command line for a queued or running reservation is a valid
// request. Sending it changes nothing.
func TestOutputAppliesUnchanged(t *testing.T) {
	w := start(t, fleet.Config{})
	w.startSim("sim", 2, 1)
	w.awaitReady(2)
	web := newWeb(t, w.fleet.Gateway())
	for _, c := range []struct {
		name, path, body string
		state            berthv1.Reservation_State
	}{
		{"running", "/v1/jobs/run/stages/s/reservation",
			`{"count": 2, "targetSize": 3, "labels": {"team": "x"}, "task": {"command": "x", "payload": "aGVsbG8=", "stopGrace": "90s"}}`, berthv1.Reservation_ACTIVE},
		{"running, few fields set", "/v1/jobs/run/stages/few/reservation",
			`{"workers": [{"index": 3, "number": 2}], "constraints": {"resources": {"slots": 0}}}`, berthv1.Reservation_ACTIVE},
		{"running, with a lifetime and restarts", "/v1/jobs/run/stages/live/reservation",
			`{"count": 2, "constraints": {"resources": {"slots": 0}}, "expireAt": "2099-01-01T00:00:00.5Z", "lifetime": {"for": "3600s", "from": "CREATED"}, "restart": "ON_FAILURE", "onWorkerLoss": "REPLACE", "maxRestarts": 0, "task": {"startTimeout": "60s", "readiness": "REPORTED"}}`, berthv1.Reservation_ACTIVE},
		{"held", "/v1/jobs/wait/stages/held/reservation",
			`{"count": 1, "constraints": {"resources": {"slots": 0}}, "hold": "HOLD", "holdTimeout": "0s"}`, berthv1.Reservation_HELD},
		{"delayed", "/v1/jobs/wait/stages/late/reservation",
			`{"count": 1, "notBefore": "2099-01-01T00:00:00Z", "lifetime": {"for": "90s", "from": "LIVE"}, "restart": "ALWAYS", "requeue": "BY_ORDER"}`,
			berthv1.Reservation_QUEUED},
		{"queued", "/v1/jobs/wait/stages/s/reservations/batch", `{"count": 3, "queueTimeout": "7200s", "maxAttempts": 7, "start": "TOGETHER", "onAssignmentFailure": "NOTIFY", "priority": {"class": "SCALE", "tier": 2, "order": "-3"},
			"constraints": {"resources": {"cpu": "1500m", "memory": "4Gi", "disk": 1000, "gpu": 1}, "attributes": {"zone": "a"}, "spread": {"by": "zone", "max": 2}, "avoid": ["sim-1"], "pools": ["default"], "role": "web"}}`, berthv1.Reservation_QUEUED},
	} {
		t.Run(c.name, func(t *testing.T) {
			web.T, w.T = t, t
			created := web.reservation("PUT", c.path, c.body)
			w.await(created, c.state)
			if c.state == berthv1.Reservation_ACTIVE {
				w.awaitRunning(created, created.GetCount())
			}
			status, answer := web.call("GET", c.path, "")
			if status != 200 || !strings.Contains(answer, `"uid"`) || !strings.Contains(answer, `"workers"`) {
				t.Fatalf("%d %s", status, answer)
			}
			if again := web.reservation("PUT", c.path,
				answer); again.GetChange() != berthv1.UpsertReservationRequest_UNCHANGED || again.GetUid() != created.GetUid() {
				t.Errorf("%v of %s after %s", again.GetChange(), again.GetUid(), answer)
			}
			key := strings.Join([]string{created.GetJob(), created.GetStage(), created.GetName()}, "/")
			for _, output := range []string{"yaml", "json"} {
				for _, what := range [][]string{{key}, {"--job", created.GetJob(), "--stage", created.GetStage()}} {
					text := w.cli("", append([]string{"get", "reservations", "-o", output}, what...)...)
					if said := w.cli(text, "apply", "-f", "-"); !strings.HasPrefix(said, key+" UNCHANGED uid "+created.GetUid()) {
						t.Errorf("-o %s of %v: %safter\n%s", output, what, said, text)
					}
				}
			}
		})
	}
}

// The same holds for a reservation with a cancelled worker, as long as other workers have
// not ended. After the reservation has ended, its worker IDs are used, and berth apply
// continues with the next item.
func TestOutputAfterCancelAppliesUnchanged(t *testing.T) {
	w := start(t, fleet.Config{})
	w.startSim("sim", 3, 1)
	w.awaitReady(3)
	web := newWeb(t, w.fleet.Gateway())
	const path = "/v1/jobs/some/stages/s/reservation"
	created := web.reservation("PUT", path, `{"count": 2, "targetSize": 2}`)
	w.awaitRunning(created, 2)
	other := web.reservation("PUT", "/v1/jobs/some/stages/t/reservation", `{"count": 1}`)
	w.awaitRunning(other, 1)
	if status, answer := web.call("POST", "/v1/jobs/some/stages/s/workers:cancel",
		`{"workers": [{"index": 0, "number": 1}]}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	_, answer := web.call("GET", path, "")
	if again := web.reservation("PUT", path, answer); again.GetChange() != berthv1.UpsertReservationRequest_UNCHANGED ||
		again.GetUid() != created.GetUid() {
		t.Errorf("%v of %s after %s", again.GetChange(), again.GetUid(), answer)
	}
	const unchanged = "some/s/main UNCHANGED uid "
	text := w.cli("", "get", "reservations", "some/s/main", "-o", "yaml")
	if said := w.cli(text, "apply", "-f", "-"); !strings.HasPrefix(said, unchanged+created.GetUid()) {
		t.Errorf("%safter\n%s", said, text)
	}

	w.cli("", "cancel", "some/s/main")
	w.await(created, berthv1.Reservation_CANCELLED)
	if status, answer := web.call("PUT", path, answer); status != 409 || !strings.Contains(answer, "WORKER_ID_USED") {
		t.Errorf("after it has ended: %d %s", status, answer)
	}
	text = w.cli("", "get", "reservations", "--job", "some", "-o", "yaml")
	cmd := exec.CommandContext(w.ctx, w.binary, "apply", "-f", "-", "--gateway", w.fleet.Gateway())
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != rpc.ExitFailed {
		t.Errorf("apply of a list with an ended reservation: %v", err)
	}
	for _, want := range []string{"item 1: workers[0].number: must be higher than 1, which worker index 0 has used, got 1", "some/t/main UNCHANGED uid " + other.GetUid(),
		"1 of 2 documents were rejected"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
