package scenario

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/identity"
)

// The Python example follows its gang while its gateway is killed and restarted, and after
// it is killed itself. It misses no event.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	python := python3(t)
	w := start(t, fleet.Config{Gateways: 2})
	w.startSim("sim", 4, 1)
	w.awaitReady(4)
	w.followInPython(python, "train-python", w.fleet.Gateway(), "--state-file", filepath.Join(w.dir, "state.json"))

	// A reservation whose workers have all ended is COMPLETED, although this worker did not complete.
	p := w.startPython(python, "--gateway", w.fleet.Gateway(), "--job", "stopped-python", "--workers", "1")
	p.await("WORKER_RUNNING")
	w.cancelWorker("stopped-python", 0)
	p.await("stopped-python/gpu/main COMPLETED: 1 worker EVICTED")
	p.awaitFailure()
}

// The Python example works with TLS and a bearer token.
func TestPythonExampleWithTLS(t *testing.T) {
	t.Parallel()
	python := python3(t)
	s := startSecured(t)
	files, err := s.fleet.Issue(identity.Job, "train")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(s.audits, "token")
	if err := os.WriteFile(token, []byte(trainToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.followInPython(python, "train-python", "https://"+s.fleet.Gateway(), "--tls-ca", files.CA, "--token-file", token,
		"--state-file", filepath.Join(s.audits, "state.json"))
}

func python3(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed, so that the example in Python cannot run")
	}
	return path
}

// pythonExample is a process of examples/python/reserve.py.
type pythonExample struct {
	*world
	process *exec.Cmd
	lines   *bufio.Scanner
	errors  bytes.Buffer
	read    []string // the lines of the output
}

func (w *world) startPython(python string, args ...string) *pythonExample {
	w.Helper()
	p := &pythonExample{world: w}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	w.Cleanup(cancel)
	p.process = exec.CommandContext(ctx, python, append([]string{"../../examples/python/reserve.py"}, args...)...)
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.process.Stderr = &p.errors
	out, err := p.process.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.process.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { p.process.Process.Kill(); io.Copy(io.Discard, out); p.process.Wait() }) //nolint:errcheck // it may have ended
	return p
}

// await reads lines until one contains a text.
func (p *pythonExample) await(text string) {
	p.Helper()
	for p.lines.Scan() {
		p.read = append(p.read, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	p.process.Wait() //nolint:errcheck // the output says more
	p.Fatalf("the output ended before %q:\n%s\n%s", text, strings.Join(p.read, "\n"), p.errors.String())
}

// awaitFailure waits until the example ends with exit status 1.
func (p *pythonExample) awaitFailure() {
	p.Helper()
	if err := p.process.Wait(); p.process.ProcessState.ExitCode() != 1 {
		p.Errorf("the example ended with %v, want exit status 1: %s", err, p.errors.String())
	}
}

// followInPython runs the example against the first gateway.
func (w *world) followInPython(python, job, gateway string, args ...string) {
	w.Helper()
	args = append([]string{"--gateway", gateway, "--job", job, "--workers", "3"}, args...)
	args = append(args, "sh", "-c", "exec sleep 3600") // for executors that are not simulated
	p := w.startPython(python, args...)
	p.await(" CREATED")
	p.await("WORKER_RUNNING")

	first := w.fleet.GatewayProcess(0)
	first.Kill()
	w.restart(first)
	w.cancelWorker(job, 2)
	p.await("WORKER_EVICTED")

	p.process.Process.Kill() //nolint:errcheck // its end is awaited
	for p.lines.Scan() {
		p.read = append(p.read, p.lines.Text())
	}
	p.process.Wait() //nolint:errcheck // it was killed
	if !strings.Contains(p.errors.String(), "retrying") {
		w.Error("the example did not notice the restart of the gateway")
	}
	w.cancelWorker(job, 1)
	again := w.startPython(python, args...)
	again.await("WORKER_EVICTED")
	w.cancel(&berthv1.Reservation{Job: job, Stage: "gpu"})
	again.await(job + "/gpu/main CANCELLED")
	again.awaitFailure()

	var want []string
	for event, err := range w.client.Events(w.ctx, job, "") {
		if err != nil {
			w.Fatal(err)
		}
		want = append(want, event.GetCursor()+" "+event.GetKind().String())
		if event.GetKind() == berthv1.Event_RESERVATION_CANCELLED {
			break
		}
	}
	got, more := printed(p.read), printed(again.read)
	// If the example is killed between the print of an event and the write of its cursor, the
	// next run prints this event again.
	if len(more) > 0 && more[0] == got[len(got)-1] {
		more = more[1:]
	}
	got = append(got, more...)
	if !slices.Equal(got, want) {
		w.Errorf("the example printed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.quiesce()
}

// printed returns the cursors and the kinds of the events in the output.
func printed(lines []string) (events []string) {
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) == 4 {
			events = append(events, fields[0]+" "+fields[1])
		}
	}
	return events
}

func (w *world) cancelWorker(job string, index int32) {
	w.Helper()
	if _, err := w.client.CancelWorkers(w.ctx, job, "gpu", &berthv1.WorkerID{Index: index, Number: 1}); err != nil {
		w.Fatal(err)
	}
}
