package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/testkit/porttest"
)

// newOn makes an agent with an ID on a directory, and does not run it.
func newOn(t *testing.T, dir, id, address string) (*Agent, error) {
	t.Helper()
	driver, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{ID: id, Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet()})
}

// contents returns the paths below a directory.
func contents(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A directory belongs to one executor: an agent with another ID is refused and stops nothing,
// also if the agent that ran before wrote no owner.
func TestADirectoryBelongsToOneExecutor(t *testing.T) {
	dir := agentDir(t)
	first, c, stop := processAgent(t, dir)
	mustSubmit(t, first, submit(0, 1, "sleep", "1000"))
	c.awaitState(t, key(0), "RUNNING")
	address, _ := c.serve(t, porttest.Hold(t))
	if _, err := newOn(t, dir, "renamed", address); err == nil || !strings.Contains(err.Error(), `the agent of "host"`) {
		t.Errorf("while the first agent runs: %v", err)
	}
	stop()
	refused := func(what string) {
		t.Helper()
		before := contents(t, dir)
		_, err := newOn(t, dir, "renamed", address)
		if !fault.Is(err, fault.ReasonOtherAgent) {
			t.Fatalf("%s: %v", what, err)
		}
		for _, part := range []string{`"host"`, `"renamed"`, "--id host", filepath.Join(dir, ownerFile)} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not contain %s", what, err, part)
			}
		}
		if after := contents(t, dir); strings.Join(after, " ") != strings.Join(before, " ") {
			t.Errorf("%s: the directory has %q, and had %q", what, after, before)
		}
	}
	refused("with an owner")
	if err := os.Remove(filepath.Join(dir, ownerFile)); err != nil {
		t.Fatal(err)
	}
	refused("without an owner")

	// The old ID adopts the worker, which still runs. Once the worker has ended, the directory
	// may be given away.
	again, c, stop := processAgent(t, dir)
	c.awaitState(t, key(0), "RUNNING")
	if err := again.StopWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.awaitState(t, key(0), "EVICTED")
	stop()
	refused("without workers")
	if err := os.Remove(filepath.Join(dir, ownerFile)); err != nil {
		t.Fatal(err)
	}
	given, err := newOn(t, dir, "renamed", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := given.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := newOn(t, dir, "host", address); !fault.Is(err, fault.ReasonOtherAgent) {
		t.Errorf("the former ID: %v", err)
	}
}

// A directory belongs to one cluster: the agent tells the control plane, and exits without
// stopping a worker if it is refused.
func TestADirectoryBelongsToOneCluster(t *testing.T) {
	dir := agentDir(t)
	c := newControl(10 * time.Millisecond)
	c.cluster = "blue"
	first, _, stop := runProcessesIn(t, c, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, Config{})
	mustSubmit(t, first, submit(0, 1, "sleep", "1000"))
	c.awaitState(t, key(0), "RUNNING")
	stop()
	green := newControl(10 * time.Millisecond)
	green.cluster = "green"
	address, _ := green.serve(t, porttest.Hold(t))
	a, err := newOn(t, dir, "host", address)
	if err != nil {
		t.Fatal(err)
	}
	err = a.Run(t.Context())
	if !fault.Is(err, fault.ReasonOtherCluster) || !strings.Contains(err.Error(), `"blue"`) {
		t.Errorf("Run returns %v", err)
	}
	if err := errors.Join(a.StopWorkers(t.Context()), a.Close()); err != nil {
		t.Error(err)
	}
	green.mu.Lock()
	if green.incarnations["host"] != 0 || len(green.workers) > 0 {
		t.Errorf("the other cluster has %v %v", green.incarnations, green.workers)
	}
	green.mu.Unlock()
	again, _, _ := runProcessesIn(t, c, ProcessConfig{Dir: dir, Allow: []string{AllowAll}}, Config{})
	again.mu.Lock()
	live := again.ledger.live()
	again.mu.Unlock()
	if live != 1 {
		t.Errorf("%d workers, want the one that still runs", live)
	}

	// An agent that was registered retries: the address of a gateway may be wrong for a while.
	c.mu.Lock()
	c.cluster = "green"
	c.incarnations["host"]++
	c.mu.Unlock()
	c.await(t, "three refusals", func() bool { return c.refused >= 3 })
	c.mu.Lock()
	c.cluster = "blue"
	before := c.complete["host"]
	c.mu.Unlock()
	c.await(t, "a report after the registration", func() bool { return c.complete["host"] > before })
}

// An agent does not guess if the owner of its directory cannot be read.
func TestAnOwnerThatCannotBeRead(t *testing.T) {
	for _, text := range []string{"", "{", `{"executor":"../x"}`, `{}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newOn(t, dir, "host", "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), ownerFile) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
