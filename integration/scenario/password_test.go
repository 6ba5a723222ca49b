package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// The password of Berth's user in etcd changes. Until the file of the password changes too, every
// process says that etcd refuses its login. Then the services lead again without a restart, and
// workers have continued.
func TestEtcdPasswordChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	w := start(t, fleet.Config{
		Flags: map[string][]string{"": {"--etcd-user", "berth", "--etcd-password-file", file},
			"gateway": {"--http-listen", "127.0.0.1:0"}},
		Seed: requireLogin,
	})
	config, err := w.fleet.EtcdConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.Username, config.Password = "root", "root"
	if w.store, err = store.Dial(config); err != nil { // it is used, and closed, after the test
		t.Fatal(err)
	}
	w.startAgents(fleet.Agent{ID: "host", Slots: 2})
	w.awaitReady(1)
	gang := shell("keeps", "running", 1, "sleep 1000")
	w.upsert(gang)
	w.awaitRunning(gang, 1)
	const refused = `refuses the login of the user \"berth\": authentication failed`

	w.expectChecks(file, nil)
	if _, err := w.store.Client().UserChangePassword(w.ctx, "berth", "second"); err != nil {
		t.Fatal(err)
	}
	var processes []*child.Process
	for _, service := range fleet.Services {
		for i := range 2 {
			processes = append(processes, w.fleet.Replica(service, i))
		}
	}
	for _, p := range append(processes, w.fleet.GatewayProcess(0)) {
		newWeb(t, p.Addresses().HTTP).expect("/readyz", http.StatusServiceUnavailable, refused)
		awaitLog(t, p, "level=WARN", `msg="not ready"`, "refuses the login of the user")
	}
	w.expectChecks(file, map[string]string{
		"gateway": "refuses the login of the user", "etcd login": "refuses the login of the user"})
	until(t, func() string {
		found, err := w.client.Findings(w.ctx)
		for _, f := range found.GetFindings() {
			if f.GetKind() == "GATEWAY_NOT_READY" && strings.Contains(f.GetMessage(), "refuses the login of the user") {
				return ""
			}
		}
		return fmt.Sprintf("no finding about the login: %v, %v", found, err)
	})

	write("second")
	for _, p := range append(processes, w.fleet.GatewayProcess(0)) {
		newWeb(t, p.Addresses().HTTP).expect("/readyz", http.StatusOK, `"ready":true`)
	}
	for _, service := range fleet.Services {
		w.leader(service)
	}
	w.expectChecks(file, nil)
	w.awaitRunning(gang, 1)
	other := shell("starts", "again", 1, "true")
	w.upsert(other)
	w.await(other, berthv1.Reservation_COMPLETED)
	w.cancel(gang)
	w.quiesce()
}

// requireLogin makes etcd require users: root, whose password is root, and berth, whose password is
// first, and who may use only the keys of Berth.
func requireLogin(ctx context.Context, etcd []string) error {
	s, err := store.Dial(store.DialConfig{Endpoints: etcd})
	if err != nil {
		return err
	}
	defer s.Close()
	c := s.Client()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.UserAdd(ctx, "berth", "first"); return err },
		func() error { _, err := c.RoleAdd(ctx, "berth"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "berth", "/berth/", clientv3.GetPrefixRangeEnd("/berth/"),
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.UserGrantRole(ctx, "berth", "berth"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// expectChecks waits until berth doctor, with the login of the services, prints these failures, by
// the check. It must never advise to start or to remove members.
func (w *world) expectChecks(passwordFile string, want map[string]string) {
	w.Helper()
	until(w.T, func() string {
		cmd := exec.CommandContext(w.ctx, w.binary, "doctor", "-o", "json", "--gateway", w.fleet.Gateway(),
			"--etcd-endpoints", strings.Join(w.fleet.Etcd(), ","), "--etcd-user", "berth", "--etcd-password-file", passwordFile)
		out, _ := cmd.Output() // its exit code depends on the checks
		var said struct {
			Checks []struct{ Check, Verdict, Seen, Do string }
		}
		if err := json.Unmarshal(out, &said); err != nil {
			w.Fatalf("doctor: %v: %s", err, out)
		}
		found := map[string]string{}
		for _, c := range said.Checks {
			if c.Verdict == "FAIL" {
				found[c.Check] = c.Seen
			}
			if c.Check == "etcd compaction" && c.Verdict == "SKIP" || strings.Contains(c.Do, "member and add a new one") ||
				strings.Contains(c.Seen, "a read fails") {
				w.Errorf("doctor: %+v", c)
			}
		}
		for check, words := range want {
			if !strings.Contains(found[check], words) {
				return fmt.Sprintf("doctor does not report %s: %s", check, out)
			}
		}
		if len(want) == 0 && len(found) > 0 {
			return fmt.Sprintf("doctor reports %v", found)
		}
		return ""
	})
}
