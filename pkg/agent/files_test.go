package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/testkit/porttest"
)

// TestTooManyOpenFiles runs an agent that may open 40 files and has 30 slots. It says so at
// its start. The starts that fail name the limit, also when they are repeated, and leave
// nothing. Stops work at the limit, and then other workers start.
func TestTooManyOpenFiles(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	var log bytes.Buffer
	executor, kill := startChildWith(t, c, dir, gateway, &log, filesVariable+"=40")
	c.registered(t, "host", 1)
	running := map[int32]bool{}
	for range 2 {
		for index := range int32(30) {
			_, err := executor.SubmitTask(t.Context(), submit(index, 1, "sleep", "1000"))
			if err == nil {
				running[index] = true
				continue
			}
			// A start that began and then failed would name the first file that it could not open.
			if text := err.Error(); !strings.Contains(text, "the agent has") || !strings.Contains(text, "too many open files") ||
				!strings.Contains(text, "LimitNOFILE") || strings.Contains(text, "exists") {
				t.Fatalf("worker %d: %v", index, err)
			}
		}
		if dirs := workerDirs(t, dir); len(dirs) != len(running) {
			t.Errorf("%d workers run, and there are the directories %q", len(running), dirs)
		}
	}
	if len(running) == 0 || len(running) == 30 {
		t.Fatalf("%d of 30 workers run", len(running))
	}
	for index := range running {
		if _, err := executor.StopTask(t.Context(), stopOf(submit(index, 1, ""), 0)); err != nil {
			t.Fatal(err)
		}
		c.awaitState(t, key(int(index)), "EVICTED")
	}
	if _, err := executor.SubmitTask(t.Context(), submit(31, 1, "true")); err != nil {
		t.Error(err)
	}
	kill()
	if !strings.Contains(log.String(), "the limit of open files is too low") {
		t.Errorf("the agent logged %s", log.String())
	}
}

// workerDirs returns the directories of workers.
func workerDirs(t *testing.T, dir string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(dir, "workers", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// A directory that a failed start could not remove does not prevent the repeat of the start:
// the first cause is not replaced by "file exists". The driver removes the directory as soon as
// it can, also without a repeat.
func TestAStartThatCouldNotBeRemoved(t *testing.T) {
	dir := t.TempDir()
	p, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for index := range 2 {
		left := filepath.Join(dir, "workers", "job", fmt.Sprint(index))
		if err := os.MkdirAll(filepath.Join(left, dirWork), 0o700); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.left[left] = true
		p.mu.Unlock()
	}
	first := filepath.Join(dir, "workers", "job", "0")
	if err := p.makeDir(first); err != nil {
		t.Fatal(err)
	}
	if has(first, dirWork) {
		t.Error("the repeat has the files of the failed start")
	}
	if err := p.makeDir(first); err == nil {
		t.Error("the directory of another worker was replaced")
	}
	p.removeLeft()
	if dirs := workerDirs(t, dir); len(dirs) != 1 || dirs[0] != first {
		t.Errorf("directories %q", dirs)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
