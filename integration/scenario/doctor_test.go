package scenario

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
)

// The test checks the findings of berth doctor in a healthy cluster, in a cluster with a
// fault, and in a cluster that cannot write.
func TestDoctor(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{Replicas: 3, Etcd: 3})
	w.diagnosis(rpc.ExitDone, nil)

	leader, _ := w.leader(model.ServiceRegistry)
	standby := w.other(model.ServiceRegistry, leader)
	standby.Kill()
	w.fleet.Member(2).Kill()
	w.diagnosis(rpc.ExitDone, map[string]string{
		"WARN registry replicas": standby.Addresses().Listen,
		"WARN etcd members":      "1 of 3 do not answer",
		"WARN etcd quorum":       "if one more fails",
	})

	w.restart(standby)
	w.restart(w.fleet.Member(2))
	w.diagnosis(rpc.ExitDone, nil)
	w.alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	w.diagnosis(rpc.ExitFailed, map[string]string{"FAIL etcd alarms": "NOSPACE"})
	w.alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	w.diagnosis(rpc.ExitDone, nil)
}

// A cluster without standbys is healthy, but berth doctor warns that it has no standbys.
func TestDoctorWithoutStandbys(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.diagnosis(rpc.ExitDone, map[string]string{
		"WARN registry replicas":       "only 2",
		"WARN executor-state replicas": "only 2",
		"WARN assigner replicas":       "only 2",
		"WARN etcd quorum":             "none may fail",
	})
}

// diagnosis waits until berth doctor exits with the exit code and reports exactly these
// findings. The key of a finding is its verdict and check.
func (w *world) diagnosis(exit int, want map[string]string) {
	w.Helper()
	until(w.T, func() string {
		cmd := exec.CommandContext(w.ctx, w.binary, "doctor", "-o", "json",
			"--gateway", w.fleet.Gateway(), "--etcd-endpoints", strings.Join(w.fleet.Etcd(), ","))
		out, err := cmd.Output()
		var said struct {
			Checks []struct{ Check, Verdict, Seen, Do string }
		}
		if err := json.Unmarshal(out, &said); err != nil {
			w.Fatalf("doctor: %v: %s", err, out)
		}
		var wrong []string
		found := map[string]bool{}
		for _, c := range said.Checks {
			// The results of these checks depend on the speed of the machine.
			if c.Verdict == "OK" || c.Verdict == "SKIP" || slices.Contains([]string{"clocks", "etcd latency"}, c.Check) {
				continue
			}
			name := c.Verdict + " " + c.Check
			found[name] = true
			if words, expected := want[name]; !expected || !strings.Contains(c.Seen, words) || c.Do == "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s; %s", name, c.Seen, c.Do))
			}
		}
		if len(wrong) > 0 || len(found) != len(want) {
			return fmt.Sprintf("doctor printed %q and found %v", wrong, found)
		}
		if got := cmd.ProcessState.ExitCode(); got != exit {
			return fmt.Sprintf("doctor exited with %d, %v: %s", got, err, out)
		}
		return ""
	})
}

// alarm raises or clears the NOSPACE alarm of etcd.
func (w *world) alarm(action etcdserverpb.AlarmRequest_AlarmAction) {
	w.Helper()
	maintenance := etcdserverpb.NewMaintenanceClient(w.store.Client().ActiveConnection())
	if _, err := maintenance.Alarm(w.ctx, &etcdserverpb.AlarmRequest{Action: action,
		Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
		w.Fatal(err)
	}
}
