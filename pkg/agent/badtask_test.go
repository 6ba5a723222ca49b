package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// A start that fails because of its task says so, whatever the kernel dislikes about it. A
// start that may have failed because of the host never does.
func TestFaultsOfTheTaskAreToldFromFaultsOfTheHost(t *testing.T) {
	dir, work := agentDir(t), filepath.Join(t.TempDir(), "work")
	files := filepath.Join(dir, "files")
	for _, err := range []error{
		os.Mkdir(files, 0o755), os.Mkdir(work, 0o755),
		os.WriteFile(filepath.Join(files, "text"), []byte("no program\n"), 0o755),
		os.WriteFile(filepath.Join(files, "script"), []byte("#!/no/such/interpreter\n"), 0o755),
		os.WriteFile(filepath.Join(files, "plain"), []byte("#!/bin/sh\n"), 0o644),
		os.Symlink("loop", filepath.Join(files, "loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a, _, _ := runProcesses(t, ProcessConfig{Dir: dir, WorkDir: work, Allow: []string{AllowAll}})
	for name, task := range map[string]*berthv1.Task{
		"no such file":         {Command: "/no/such/program"},
		"not in PATH":          {Command: "no-such-program"},
		"a directory":          {Command: files},
		"not executable":       {Command: filepath.Join(files, "plain")},
		"not a directory":      {Command: filepath.Join(files, "plain", "x")},
		"a loop of links":      {Command: filepath.Join(files, "loop")},
		"a name too long":      {Command: "/" + strings.Repeat("x", 300)},
		"a path too long":      {Command: strings.Repeat("/x", 3000)},
		"a bad format":         {Command: filepath.Join(files, "text")},
		"no interpreter":       {Command: filepath.Join(files, "script")},
		"an argument too long": {Command: "true", Args: []string{strings.Repeat("x", 1<<18)}},
		"a variable too long":  {Command: "true", Env: map[string]string{"LONG": strings.Repeat("x", 1<<18)}},
		"a NUL in an argument": {Command: "true", Args: []string{"a\x00b"}},
		"a NUL in a variable":  {Command: "true", Env: map[string]string{"X": "a\x00b"}},
	} {
		req := submit(0, 1, "")
		req.Task = task
		if _, err := trySubmit(t.Context(), a, req); !fault.Is(err, fault.ReasonStartFailed) || !isBadTask(err) {
			t.Errorf("%s: %v, want a fault of the task", name, err)
		}
	}
	if err := os.Remove(work); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"true", "./true"} {
		if _, err := trySubmit(t.Context(), a, submit(0, 1, command)); !fault.Is(err, fault.ReasonStartFailed) ||
			isBadTask(err) || !strings.Contains(err.Error(), "working directory "+work+": no such file or directory") {
			t.Errorf("%s without the working directory of the host: %v", command, err)
		}
	}
	for path, want := range map[string]string{work: "no such file", filepath.Join(files, "plain"): "not a directory"} {
		cfg := ProcessConfig{Dir: dir, WorkDir: path}
		if _, err := NewProcess(cfg); err == nil || !strings.Contains(err.Error(), "--work-dir: cannot enter ") ||
			!strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("a driver with the working directory %s: %v", path, err)
		}
	}
	err := errors.Join(os.Mkdir(work, 0o755), os.RemoveAll(filepath.Join(dir, "workers")),
		os.WriteFile(filepath.Join(dir, "workers"), nil, 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trySubmit(t.Context(), a, submit(0, 1, "true")); !fault.Is(err, fault.ReasonStartFailed) ||
		isBadTask(err) {
		t.Errorf("without a directory for workers: %v", err)
	}
}

// A program that the user of the worker may not run is a fault of the task. A working directory
// that this user cannot enter is a fault of the host, although the kernel returns the same error.
func TestPermissionsOfTheWorkersUser(t *testing.T) {
	cfg := usersFor(t, 219000, 8)
	program := filepath.Join(cfg.Dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, _, _ := runProcesses(t, cfg)
	if _, err := trySubmit(t.Context(), a, submit(0, 1, program)); !fault.Is(err, fault.ReasonStartFailed) ||
		!isBadTask(err) {
		t.Errorf("a program of another user: %v", err)
	}
	closed := usersFor(t, 219100, 8)
	closed.WorkDir = agentDir(t)
	if _, err := NewProcess(closed); err == nil || !strings.Contains(err.Error(), "run chmod o+x "+closed.WorkDir) {
		t.Errorf("a driver with a working directory of another user: %v", err)
	}
	if err := os.Chmod(closed.WorkDir, 0o711); err != nil {
		t.Fatal(err)
	}
	b, _, _ := runProcesses(t, closed)
	if err := os.Chmod(closed.WorkDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := trySubmit(t.Context(), b, submit(0, 1, "true")); !fault.Is(err, fault.ReasonStartFailed) ||
		isBadTask(err) || !strings.Contains(err.Error(), closed.WorkDir) {
		t.Errorf("a working directory of another user: %v", err)
	}
}

// After an agent has acknowledged a start, its failure is an end. The reports and the answers of
// the agent mark a fault of the task.
func TestEndsSayThatTheTaskIsAtFault(t *testing.T) {
	for _, bad := range []bool{true, false} {
		l := newLedger("host", "", 0)
		l.begin(1, 1)
		id := identity{model.Worker{Job: "job", Stage: "stage"}, 100}
		if _, _, _, err := l.submit(1, 1, id, "u", time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		l.ended(id, Exit{Problem: "no such file", BadTask: bad}, time.Unix(0, 0))
		w := l.entries[id].wire()
		if w.GetState() != berthv1.Assignment_FAILED || w.GetBadTask() != bad {
			t.Errorf("%v, want bad_task %t", w, bad)
		}
	}
}
