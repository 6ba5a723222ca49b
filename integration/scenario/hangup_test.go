package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"berth.dev/pkg/process/child"
)

// SIGHUP makes every process read its certificate and its access file again at once, and close an
// audit log that was moved. The processes and the workers continue.
func TestHangupReadsFilesAgain(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	gang := shell("keeps", "running", 2, "sleep 1000")
	s.upsert(gang)
	s.awaitRunning(gang, 2)
	started := map[*child.Process]int{}
	for _, p := range s.ports() {
		s.send(p, nil) // a connection in plain text, which is a line of the audit log
		started[p.process] = p.process.Pid()
	}
	if len(started) != 9 {
		t.Fatalf("%d processes, want all of the fleet", len(started))
	}
	for p, pid := range started {
		log, moved := s.audit(p.Name), s.audit(p.Name)+".1"
		awaitOpen(t, pid, log, true)
		if err := os.Rename(log, moved); err != nil {
			t.Fatal(err)
		}
		awaitOpen(t, pid, moved, true)
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		awaitOpen(t, pid, moved, false)
		awaitLog(t, p, "read the certificate again")
		if p != s.fleet.Agent("host") && p != s.fleet.Agent("sim") {
			awaitLog(t, p, "read the access file again")
		}
	}
	s.awaitReady(3)
	s.awaitRunning(gang, 2)
	for p, pid := range started {
		if !p.Running() || p.Pid() != pid {
			t.Errorf("%s has ended", p.Name)
		}
	}
	s.cancel(gang)
	s.quiesce()
}

// awaitOpen waits until a process has a file open, or until it has not.
func awaitOpen(t *testing.T, pid int, file string, want bool) {
	t.Helper()
	until(t, func() string {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		open := slices.ContainsFunc(links, func(link string) bool {
			name, _ := os.Readlink(link) // the process may have closed the file
			return name == file
		})
		if open != want {
			return fmt.Sprintf("process %d has %s open: %v, want %v", pid, file, open, want)
		}
		return ""
	})
}
