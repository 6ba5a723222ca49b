package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"berth.dev/testkit/porttest"
)

// saver returns a program that writes its process ID to a FIFO. If it is signalled to stop, it writes
// `saving`, waits for a line of gate, and writes `saved`. Its own child may not have reset the handler
// yet when the signal arrives, so the program kills it.
func saver(f, gate *fifo) string {
	return `sh -c 'trap "echo saving >` + f.path + `; read go <` + gate.path + `; echo saved >` + f.path +
		`; kill -9 \$!; exit 0" TERM; sleep 1000 & echo $$ >` + f.path + `; while :; do wait; done'`
}

// saverFile writes a command to a script and returns its path.
func saverFile(t *testing.T, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saver.sh")
	if err := os.WriteFile(path, []byte("exec "+command+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// If a worker without a handler starts a program that saves its state when it is stopped,
// the program has the whole grace period. The worker ends when the program has exited, with
// the exit code of its own process.
func TestStoppedGroupHasItsGrace(t *testing.T) {
	for name, program := range map[string]func(saver string) string{
		"in the group":       func(saver string) string { return saver },
		"in another session": func(saver string) string { return "setsid " + saver },
		"below another session": func(saver string) string { // whose leader has a handler and waits
			return `setsid sh -c 'trap : TERM; sh "$0"; :' ` + saverFile(t, saver)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := agentDir(t)
			a, c, _ := processAgent(t, dir)
			f, gate := newFIFO(t), newFIFO(t)
			req := submit(0, 1, "sh", "-c", program(saver(f, gate))+" & echo $$ >"+f.path+"; wait")
			mustSubmit(t, a, req)
			pids := []int{f.pid(t), f.pid(t)}
			if _, err := tryStop(t.Context(), a, stopOf(req, time.Minute)); err != nil {
				t.Fatal(err)
			}
			if got := f.line(t); got != "saving" {
				t.Fatal(got)
			}
			if has(filepath.Join(dir, "workers", "job", "stage.0.1.100"), fileExit) {
				t.Error("the worker has ended")
			}
			gate.write(t, "go\n")
			if got := f.line(t); got != "saved" {
				t.Error(got)
			}
			if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+15 {
				t.Error(w)
			}
			for _, pid := range pids {
				if _, err := readStat(pid); err == nil {
					t.Errorf("%d runs", pid)
				}
			}
		})
	}
}

// A worker with a stop signal gets this one, in every group of its processes, and no SIGTERM.
func TestStopSignal(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	req := submit(0, 1, "sh", "-c", `trap "" TERM; trap "echo stop >`+f.path+`; exit 7" USR2
		setsid sh -c 'trap "echo stop >`+f.path+`; exit 0" USR2; echo $$ >`+f.path+`; while :; do sleep 0.01; done' &
		while :; do sleep 0.01; done`)
	req.Task.StopSignal = proto.String("SIGUSR2")
	mustSubmit(t, a, req)
	f.pid(t)
	if _, err := tryStop(t.Context(), a, stopOf(req, time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := f.line(t); got != "stop" {
			t.Fatal(got)
		}
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 7 {
		t.Error(w)
	}
}

// SIGKILL follows also after another stop signal.
func TestStopSignalIsFollowedByAKill(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	req := submit(0, 1, "sh", "-c", `trap "echo heard >`+f.path+`" INT; echo $$ >`+f.path+`; while :; do sleep 0.01; done`)
	req.Task.StopSignal = proto.String("SIGINT")
	mustSubmit(t, a, req)
	f.pid(t)
	if _, err := tryStop(t.Context(), a, stopOf(req, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.line(t); got != "heard" {
		t.Fatal(got)
	}
	if _, err := tryStop(t.Context(), a, stopOf(req, 0)); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+9 {
		t.Error(w)
	}
}

// At the end of the grace period, what is left of a stopped worker is killed. A further
// stop request can shorten the period, also after the worker's own process has exited.
func TestStoppedGroupIsKilledAfterItsGrace(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f, gate := newFIFO(t), newFIFO(t)
	req := submit(0, 1, "sh", "-c", saver(f, gate)+" & "+saver(f, gate)+" & wait")
	mustSubmit(t, a, req)
	pids := []int{f.pid(t), f.pid(t)}
	for i, grace := range []time.Duration{time.Hour, 0} {
		if _, err := tryStop(t.Context(), a, stopOf(req, grace)); err != nil {
			t.Fatal(err)
		}
		for range 2 - 2*i {
			if got := f.line(t); got != "saving" {
				t.Fatal(got)
			}
		}
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+15 {
		t.Error(w)
	}
	for _, pid := range pids {
		if _, err := readStat(pid); err == nil {
			t.Errorf("%d runs", pid)
		}
	}
}

// If the agent dies during the grace period, the keeper continues, and the next agent adopts
// the worker.
func TestGraceContinuesWithoutAgent(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	f, gate := newFIFO(t), newFIFO(t)
	executor, kill := startChild(t, c, dir, gateway)
	c.registered(t, "host", 1)
	req := submit(0, 1, "sh", "-c", saver(f, gate)+" & wait")
	if _, err := executor.SubmitTask(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	f.pid(t)
	if _, err := executor.StopTask(t.Context(), stopOf(req, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := f.line(t); got != "saving" {
		t.Fatal(got)
	}
	kill()
	startChild(t, c, dir, gateway)
	c.registered(t, "host", 2)
	c.awaitState(t, key(0), "EVICTING")
	gate.write(t, "go\n")
	if got := f.line(t); got != "saved" {
		t.Error(got)
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+15 {
		t.Error(w)
	}
}
