package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/testkit/porttest"
)

// runsUntilSuperseded runs a registered agent with two workers. The channel receives the
// result of Run.
func runsUntilSuperseded(t *testing.T, c *control) (*Agent, chan error) {
	t.Helper()
	address, _ := c.serve(t, porttest.Hold(t))
	a, err := New(Config{ID: "host", Driver: Simulated{}, Conn: dial(t, address), Log: quiet(), startWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	returned, done := make(chan error, 1), make(chan struct{})
	go func() { defer close(done); returned <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	c.registered(t, "host", 1)
	for index := range int32(2) {
		mustSubmit(t, a, submit(index, 1, ""))
		c.awaitState(t, key(int(index)), "RUNNING")
	}
	return a, returned
}

// A superseded agent stops its workers, reports their ends and exits.
func TestSupersededAgentStopsItsWorkersAndExits(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	a, returned := runsUntilSuperseded(t, c)
	c.mu.Lock()
	c.superseded = true
	c.mu.Unlock()
	if err := <-returned; !errors.Is(err, ErrSuperseded) {
		t.Fatalf("Run returns %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for index := range int32(2) {
		if state := c.workers[key(int(index))].State.String(); state != "EVICTED" {
			t.Errorf("worker %d was last reported %s", index, state)
		}
	}
	if _, err := a.SubmitTask(t.Context(), submit(3, 1, "")); err == nil {
		t.Error("a superseded agent accepted a start request")
	}
}

// After an outage, an agent may learn only from its new registration that it was
// superseded.
func TestAgentExitsIfItsExecutorHasAnotherAgent(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	a, returned := runsUntilSuperseded(t, c)
	c.mu.Lock()
	c.owned = true
	c.incarnations["host"], c.nonces["host"] = 7, "another"
	c.mu.Unlock()
	if err := <-returned; !errors.Is(err, ErrSuperseded) {
		t.Fatalf("Run returns %v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if live := a.ledger.live(); live > 0 {
		t.Errorf("%d workers run", live)
	}
}

// If a superseded agent restarts, it gets no incarnation. It stops the workers that it
// adopts and exits without a heartbeat.
func TestASupersededAgentThatIsRestartedSendsNoHeartbeat(t *testing.T) {
	dir := agentDir(t)
	first, c, stop := processAgent(t, dir)
	mustSubmit(t, first, submit(0, 1, "sleep", "1000"))
	c.awaitState(t, key(0), "RUNNING")
	stop()
	c.mu.Lock()
	c.owned = true
	c.mu.Unlock()
	address, _ := c.serve(t, porttest.Hold(t))
	driver, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{ID: "host", Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Run(t.Context()); !errors.Is(err, ErrSuperseded) {
		t.Errorf("Run returns %v", err)
	}
	a.mu.Lock()
	live := a.ledger.live()
	a.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if live > 0 || len(c.wrong) > 0 {
		t.Errorf("%d workers run, %q", live, c.wrong)
	}
}

// If an agent never had the ID, it retries until the ID is free, and logs the conflict
// once.
func TestAgentRetriesWhileAnotherHasItsID(t *testing.T) {
	testRefused(t, "the ID belongs to another agent", func(c *control, refuse bool) { c.owned = refuse })
}

// If the registration is refused because of its content, the agent logs the reason once, and
// retries less and less often.
func TestAgentWithAnInvalidRegistration(t *testing.T) {
	testRefused(t, "the registration is refused", func(c *control, refuse bool) { c.invalid = refuse })
}

// testRefused expects an agent to log a text once while the control plane refuses its registrations, and
// then to register.
func testRefused(t *testing.T, text string, set func(c *control, refuse bool)) {
	t.Helper()
	c := newControl(10 * time.Millisecond)
	set(c, true)
	log := &lines{text: text}
	address, _ := c.serve(t, porttest.Hold(t))
	runAgent(t, Config{ID: "host", Driver: Simulated{}, Conn: dial(t, address),
		Log: slog.New(slog.NewTextHandler(log, nil))})
	c.await(t, "three refusals", func() bool { return c.refused >= 3 })
	if n := log.count.Load(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	c.mu.Lock()
	set(c, false)
	c.mu.Unlock()
	c.registered(t, "host", 1)
}

// Only the agent's user can read the stored secret. The secret survives restarts and
// appears in no log.
func TestTheSecretIsKept(t *testing.T) {
	c := newControl(10 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	dir := t.TempDir()
	var log bytes.Buffer
	run := func(incarnation int64, config Config) string {
		config.ID, config.Driver, config.Conn = "host", NewFunctions(nil), dial(t, address)
		config.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		_, stop := runAgent(t, config)
		c.await(t, "the registration", func() bool { return c.incarnations["host"] == incarnation })
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		secret := c.secrets[len(c.secrets)-1]
		if secret == "" || strings.Contains(log.String(), secret) {
			t.Errorf("the secret %q is empty or was logged", secret)
		}
		return secret
	}
	first := run(1, Config{Dir: dir})
	path := filepath.Join(dir, secretFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if second := run(2, Config{Dir: dir}); second != first {
		t.Error("another secret after a restart")
	}
	if given := run(3, Config{Dir: dir, Secret: "given"}); given != "given" {
		t.Errorf("registered with secret %q", given)
	}
	if other := run(4, Config{}); other == first || other == run(5, Config{}) {
		t.Error("agents without a directory share a secret")
	}
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{ID: "host", Driver: NewFunctions(nil), Conn: dial(t, address), Dir: dir,
		Log: quiet()}); err == nil || !strings.Contains(err.Error(), secretFile) {
		t.Errorf("an empty secret: %v", err)
	}
}
