package console

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/integration/built"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/transport"
)

var (
	browser = flag.Bool("browser", false, "play the console in Chromium, with Node")
	scale   = flag.Bool("scale", false, "measure the console with 10,000 executors and 100,000 pending reservations")
	shots   = flag.String("screenshots", "", "directory to write the screenshots of the views to")
)

// timeout bounds a play. Only a failure takes this long.
const timeout = 10 * time.Minute

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if !*browser && !*scale {
		os.Exit(m.Run()) // the tests are skipped and need no program
	}
	os.Exit(built.Run(func(path string) int {
		binary = path
		return m.Run()
	}))
}

// tokens has the bearer tokens of the plays by the name of their identity.
var tokens = map[string]string{
	"alice": "token-of-alice-0123456789abcdef", "vera": "token-of-vera-0123456789abcdef",
	"train": "token-of-train-0123456789abcdef",
}

// manyViewers is the number of the viewers that watch at the same time.
const manyViewers = 49

// accessFile has an operator, viewers, a job service and a tenant.
func accessFile() string {
	sum := func(name string) [32]byte { return sha256.Sum256([]byte(tokens[name])) }
	file := fmt.Sprintf(`tenants:
- name: train
  limits: {queuedReservations: 500, workers: 4000, batch: 1000, eventStreams: 50, requestsPerSecond: 200}
tokens:
- {role: operator, name: alice, sha256: %x}
- {role: viewer, name: vera, sha256: %x}
- {role: job, name: train, sha256: %x}
`, sum("alice"), sum("vera"), sum("train"))
	for i := range manyViewers {
		name := fmt.Sprintf("viewer%d", i)
		tokens[name] = fmt.Sprintf("token-of-viewer-%d-0123456789abcdef", i)
		file += fmt.Sprintf("- {role: viewer, name: %s, sha256: %x}\n", name, sum(name))
	}
	return file
}

// TestConsole plays every view and every action while processes fail.
func TestConsole(t *testing.T) {
	if !*browser {
		t.Skip("needs Chromium and Node: make console-test")
	}
	w := start(t, fleet.Config{Replicas: 3, TLS: transport.Require,
		Flags: map[string][]string{model.ServiceRegistry: {"--readiness", "signal"}}})
	for _, zone := range []string{"a", "b"} {
		for i := range 6 {
			if err := w.fleet.StartAgent(w.ctx, fleet.Agent{ID: fmt.Sprintf("gpu-%s%d", zone, i), Slots: 2, SKU: "gpu-8",
				Resources:  []string{"cpu=8", "memory=32Gi", "gpu=8"},
				Attributes: []string{"zone=" + zone, "pool=training"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for prefix, n := range map[string]int{"small": 60, "frail": 3} {
		if err := w.fleet.StartSim(w.ctx, prefix, n, 4); err != nil {
			t.Fatal(err)
		}
	}
	w.play("play.mjs")
}

// TestConsoleBelowAPath plays the console at gateways below a path.
func TestConsoleBelowAPath(t *testing.T) {
	if !*browser {
		t.Skip("needs Chromium and Node: make console-test")
	}
	w := start(t, fleet.Config{TLS: transport.Require, Flags: map[string][]string{
		model.ServiceGateway: {"--base-path", "/berth"}}})
	w.base = "/berth"
	if err := w.fleet.StartSim(w.ctx, "small", 4, 4); err != nil {
		t.Fatal(err)
	}
	w.play("below.mjs")
}

// world is a fleet with the control server for a play.
type world struct {
	*testing.T
	ctx     context.Context
	fleet   *fleet.Fleet
	control *httptest.Server
	dir     string
	base    string // the base path of the gateways
}

func start(t *testing.T, config fleet.Config) *world {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(stop)
	w := &world{T: t, ctx: ctx, dir: t.TempDir()}
	file := filepath.Join(w.dir, "access.yaml")
	if err := os.WriteFile(file, []byte(accessFile()), 0o600); err != nil {
		t.Fatal(err)
	}
	config.Binary, config.Dir = binary, w.dir
	if config.Flags == nil {
		config.Flags = map[string][]string{}
	}
	config.Flags[""] = []string{"--access", file}
	f, err := fleet.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	w.fleet = f
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("stop of the fleet: %v", err)
		}
	})
	w.control = httptest.NewServer(http.HandlerFunc(w.serveControl))
	t.Cleanup(w.control.Close)
	return w
}

// play runs a script of console/test with Node.
func (w *world) play(script string) {
	w.Helper()
	command := exec.CommandContext(w.ctx, "node", "--test-reporter=spec", "--test", filepath.Join("test", script))
	command.Dir = filepath.Join("..", "..", "console")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	scheme := "http"
	command.Env = append(os.Environ(), "BERTH="+binary, "CONTROL_URL="+w.control.URL, "WORK_DIR="+w.dir)
	if certs := w.fleet.CertsDir(); w.fleet.ClientTLS(0) != nil {
		scheme = "https"
		operator, err := w.fleet.Issue(identity.Operator, "carol")
		if err != nil {
			w.Fatal(err)
		}
		command.Env = append(command.Env, "NODE_EXTRA_CA_CERTS="+filepath.Join(certs, "ca.crt"),
			"CERTIFICATE="+strings.TrimSuffix(operator.Cert, ".crt"))
	}
	command.Env = append(command.Env, "BASE_URL="+scheme+"://"+w.fleet.Gateway()+w.base)
	if *shots != "" {
		dir, err := filepath.Abs(*shots)
		if err != nil {
			w.Fatal(err)
		}
		command.Env = append(command.Env, "SCREENSHOTS="+dir)
	}
	for name, token := range tokens {
		command.Env = append(command.Env, "TOKEN_"+strings.ToUpper(name)+"="+token)
	}
	if err := command.Run(); err != nil {
		w.Errorf("%s: %v", script, err)
		w.showLogs()
	}
}

func (w *world) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		w.Logf("%s:\n%s", filepath.Base(log), text[max(0, len(text)-2000):])
	}
}

// serveControl carries out POST /{action}/{name}: kill-leader of a service, kill and
// restart of a replica or gateway, freeze and continue of the agents with a name.
func (w *world) serveControl(out http.ResponseWriter, r *http.Request) {
	action, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	answer := map[string]any{}
	err := func() error {
		switch action {
		case "kill-leader":
			leader, term, err := w.fleet.Leader(r.Context(), name)
			if err != nil {
				return err
			}
			answer["replica"], answer["term"], answer["at"] = leader.Name, term, time.Now().UnixMilli()
			leader.Kill()
			return nil
		case "kill":
			w.named(name).Kill()
			return nil
		case "restart":
			return w.fleet.Restart(w.ctx, w.named(name))
		case "freeze":
			return w.fleet.Agent(name).Signal(syscall.SIGSTOP)
		case "continue":
			return w.fleet.Agent(name).Signal(syscall.SIGCONT)
		}
		return fmt.Errorf("no action %q", action)
	}()
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	json.NewEncoder(out).Encode(answer) //nolint:errcheck // the play fails if it gets no answer
}

// named returns the replica with a name.
func (w *world) named(name string) *child.Process {
	for _, list := range w.fleet.Processes() {
		for _, p := range list {
			if p.Name == name {
				return p
			}
		}
	}
	return nil
}

// The size of the cluster of TestScale.
const (
	manyExecutors = 10_000
	manyPending   = 100_000
)

// TestScale measures the console with a large fleet and long queues.
func TestScale(t *testing.T) {
	if !*scale {
		t.Skip("needs Chromium, Node and some minutes: make console-bench")
	}
	w := start(t, fleet.Config{Replicas: 1, LogLevel: "error"})
	if err := w.fleet.StartSim(w.ctx, "sim", manyExecutors, 4); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	reserve := func(i int) error {
		r := &berthv1.Reservation{Job: fmt.Sprintf("job-%03d", i%1000), Stage: "s", Name: fmt.Sprintf("r-%d", i), Count: 4,
			// No executor has a GPU. Nine of ten reservations are in one queue.
			Constraints: &berthv1.Constraints{Sku: "sim", Resources: map[string]int64{"gpu": int64(1 + max(0, i%100-90))}}}
		_, err := w.fleet.Client().Reserve(w.ctx, r)
		return err
	}
	var group sync.WaitGroup
	const callers = 64
	failures := make(chan error, callers)
	for caller := range callers {
		group.Go(func() {
			for i := caller; i < manyPending; i += callers {
				if err := reserve(i); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	t.Logf("%d reservations in %v", manyPending, time.Since(began))
	for i := range 10 {
		r := &berthv1.Reservation{Job: "running", Stage: fmt.Sprintf("s%d", i), Count: 1000,
			Constraints: &berthv1.Constraints{Sku: "sim"}, Task: &berthv1.Task{Payload: []byte(`{"runFor":"3600s"}`)}}
		if _, err := w.fleet.Client().Reserve(w.ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	w.play("scale.mjs")
}
