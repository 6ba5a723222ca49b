package scenario

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/process/child"
	"berth.dev/testkit/porttest"
)

// agentProcess starts an agent that is not part of a fleet, with a port for health and
// metrics.
func agentProcess(t *testing.T, gateways string, flags ...string) (*child.Process, *web) {
	t.Helper()
	dir := t.TempDir()
	p := child.New("agent", ownBinary(t, dir), dir, nil, append([]string{"agent", "--id", "alone", "--gateways", gateways,
		"--dir", filepath.Join(dir, "agent")}, flags...)...)
	starting, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Start(starting, "--listen", "--http-listen"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, newWeb(t, p.Addresses().HTTP)
}

// expect waits until a path of operations answers with a status and the words.
func (w *web) expect(path string, status int, words ...string) {
	w.Helper()
	until(w.T, func() string {
		got, body := w.call("GET", path, "")
		for _, word := range words {
			if got != status || !strings.Contains(body, word) {
				return fmt.Sprintf("%s answered %d %s", path, got, body)
			}
		}
		return ""
	})
}

// An agent is alive from its start. It is ready while the control plane answers its
// heartbeats.
func TestAgentHealth(t *testing.T) {
	t.Parallel()
	_, alone := agentProcess(t, porttest.Hold(t))
	alone.expect("/healthz", http.StatusOK, `"alive":true`)
	alone.expect("/readyz", http.StatusServiceUnavailable, `"ready":false`, "executor alone is not registered yet")
	alone.expect("/metrics", http.StatusOK, "berth_agent_ready 0", "berth_build_info{", "berth_agent_free_bytes")

	address := porttest.Hold(t)
	w := start(t, fleet.Config{Flags: map[string][]string{"agent": {"--http-listen", address}}})
	w.startAgents(fleet.Agent{ID: "host", Slots: 1})
	healthy := w.web(address)
	healthy.expect("/readyz", http.StatusOK, `"ready":true`)
	healthy.expect("/leaderz", http.StatusNotFound, "election")
	healthy.expect("/metrics", http.StatusOK, `berth_agent_ready{cluster="default"} 1`,
		`berth_agent_registrations_total{cluster="default"} 1`,
		`berth_agent_workers{cluster="default",state="RUNNING"} 0`, "berth_agent_heartbeat_age_seconds")
}

// If no gateway serves an agent, its log names each address and the reason within two
// seconds.
func TestAgentNamesTheReason(t *testing.T) {
	t.Parallel()
	closed := porttest.Hold(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p, _ := agentProcess(t, closed+",no-such-host.invalid:8081,"+silent.Addr().String())
	awaitLog(t, p, "level=WARN", `msg="not ready"`, "executor alone is not registered yet", closed+": connection refused",
		`no-such-host.invalid`, silent.Addr().String()+": it does not answer a call in plain text")
}

// awaitLog waits for a line of a log that contains all words.
func awaitLog(t *testing.T, p *child.Process, words ...string) {
	t.Helper()
	until(t, func() string {
		text := tail(p.LogFile(), 10_000)
		for line := range strings.Lines(text) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return ""
			}
		}
		return fmt.Sprintf("no line has %q: %s", words, text)
	})
}

// Each process notifies systemd when it serves, and when it stops.
func TestServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	for _, args := range [][]string{
		{"registry", "--etcd-endpoints", strings.Join(w.fleet.Etcd(), ","), "--gateways", "127.0.0.1:1", "--cluster", "alone",
			"--http-listen", "127.0.0.1:0"},
		{"gateway", "--etcd-endpoints", strings.Join(w.fleet.Etcd(), ","), "--agents-listen", "127.0.0.1:0",
			"--internal-listen", "127.0.0.1:0"},
		{"agent", "--id", "notifies", "--dir", filepath.Join(t.TempDir(), "agent"), "--gateways",
			w.fleet.AgentsGateways()[0]},
	} {
		socket := filepath.Join(t.TempDir(), "notify")
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		receive := func(want string) {
			t.Helper()
			manager.SetReadDeadline(time.Now().Add(patience))
			var message [64]byte
			n, err := manager.Read(message[:])
			if got := string(message[:n]); got != want || err != nil {
				t.Fatalf("%s: got %q (%v), want %q", args[0], got, err, want)
			}
		}
		p := child.New("notifies-"+args[0], w.binary, w.dir, []string{"NOTIFY_SOCKET=" + socket}, args...)
		if err := p.Start(w.ctx, "--listen"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		receive("READY=1")
		stopping, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := p.Stop(stopping); err != nil {
			t.Error(err)
		}
		receive("STOPPING=1")
	}
}
