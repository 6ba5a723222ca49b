package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
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

// A second signal ends a process whose stop takes long: here an agent that waits for a worker that ignores
// its termination signal. The next agent adopts the worker.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startAgents(fleet.Agent{ID: "host", Slots: 1, Allow: []string{"/bin/sh"}})
	w.awaitReady(1)
	dir := t.TempDir()
	r := shell("stubborn", "s", 1, `trap 'echo $$ > "$DIR/asked"' TERM; while :; do sleep 0.05 || :; done`)
	r.Task.Env, r.Task.StopGrace = map[string]string{"DIR": dir}, durationpb.New(time.Hour)
	w.upsert(r)
	w.awaitRunning(r, 1)
	agent := w.fleet.Agent("host")
	if err := agent.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	pidOf(t, filepath.Join(dir, "asked")) // the agent stops in order
	w.terminate(agent)
	if err := agent.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.client.CancelWith(w.ctx, client.KeyOf(r), new(time.Duration)); err != nil {
		t.Fatal(err)
	}
	w.await(r, berthv1.Reservation_CANCELLED)
	w.quiesce()
}

// An agent with --stop-workers stops its workers at the first signal, and ends only once the control
// plane has their ends.
func TestAStoppedAgentReportsTheEndsOfItsWorkers(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startAgents(fleet.Agent{ID: "host", Slots: 2, Allow: []string{"/bin/sh"}})
	w.awaitReady(1)
	r := shell("ends", "s", 2, "trap 'exit 7' TERM; while :; do sleep 0.05; done")
	w.upsert(r)
	w.awaitRunning(r, 2)
	agent := w.fleet.Agent("host")
	w.terminate(agent)
	w.awaitEnds("ends", 2, fault.ReasonStopped)
	w.await(r, berthv1.Reservation_COMPLETED)
	w.quiesce()
}

// An agent with --stop-workers that no gateway answers ends nevertheless, after its workers. The next
// agent reports their ends.
func TestAStoppedAgentDoesNotWaitForLostGateways(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startAgents(fleet.Agent{ID: "host", Slots: 1, Allow: []string{"/bin/sh"}})
	w.awaitReady(1)
	dir := t.TempDir()
	r := shell("alone", "s", 1, `trap 'echo $$ > "$DIR/stopped"; exit 7' TERM; while :; do sleep 0.05; done`)
	r.Task.Env = map[string]string{"DIR": dir}
	w.upsert(r)
	w.awaitRunning(r, 1)
	w.fleet.GatewayProcess(0).Kill()
	agent := w.fleet.Agent("host")
	w.terminate(agent)
	if pid := pidOf(t, filepath.Join(dir, "stopped")); syscall.Kill(pid, 0) == nil {
		t.Errorf("worker %d runs after its agent", pid)
	}
	w.restart(w.fleet.GatewayProcess(0))
	if err := agent.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.awaitEnds("alone", 1, fault.ReasonStopped)
	w.quiesce()
}

// terminate sends a termination signal to a process and waits until it has ended.
func (w *world) terminate(p *child.Process) {
	w.Helper()
	ended := p.Ended()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		w.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		w.Fatalf("%s runs after its termination signal", p.Name)
	}
}

// awaitEnds waits until n workers of a job have ended, each EVICTED for a reason.
func (w *world) awaitEnds(job string, n int, reason fault.Reason) {
	w.Helper()
	w.awaitEvents(job, func(e *berthv1.Event) bool {
		switch e.GetKind() {
		case berthv1.Event_WORKER_LOST, berthv1.Event_WORKER_FAILED, berthv1.Event_WORKER_COMPLETED,
			berthv1.Event_WORKER_EVICTED:
			for _, worker := range e.GetWorkers() {
				if n--; e.GetKind() != berthv1.Event_WORKER_EVICTED || worker.GetReason() != string(reason) {
					w.Errorf("worker %d.%d: %v, %s", worker.GetIndex(), worker.GetNumber(), e.GetKind(), worker.GetReason())
				}
			}
		}
		return n <= 0
	})
}
