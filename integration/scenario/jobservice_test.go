package scenario

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
)

// The example job service keeps its workers running while workers, their hosts and the
// service itself fail. It never requests a worker too many.
func TestJobService(t *testing.T) {
	t.Parallel()
	program := buildExample(t, "jobservice") // building may take longer than the rest of the test
	w := start(t, fleet.Config{})
	if _, err := w.client.PutPool(w.ctx, &berthv1.Pool{Name: "frail", LostAfter: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		w.startAgents(fleet.Agent{ID: fmt.Sprintf("host-%d", i), Slots: 2, Attributes: []string{"pool=frail"}})
	}
	w.awaitReady(4)
	s := w.startJobService(program, 3)

	s.awaitSettled(map[int32]int32{0: 1, 1: 1, 2: 1})
	s.send("5")
	s.awaitSettled(map[int32]int32{0: 1, 1: 1, 2: 1, 3: 1, 4: 1})

	// A killed worker has failed, and a worker with the next number replaces it at its index.
	s.killWorkers(func(env map[string]string) bool { return env["BERTH_WORKER_INDEX"] == "1" })
	s.awaitSettled(map[int32]int32{0: 1, 1: 2, 2: 1, 3: 1, 4: 1})

	// The job service and a worker are killed. The next process of the job service knows only
	// the current workers, and requests only the missing one.
	s.kill()
	s.killWorkers(func(env map[string]string) bool { return env["BERTH_WORKER_INDEX"] == "3" })
	s = w.startJobService(program, 5)
	want := map[int32]int32{0: 1, 1: 2, 2: 1, 3: 2, 4: 1}
	workers := s.awaitSettled(want)

	// A host fails together with its workers.
	host := workers[0].Executor
	for index, worker := range workers {
		if worker.Executor == host {
			want[index]++
		}
	}
	w.fleet.Agent(host).Kill()
	s.killWorkers(func(env map[string]string) bool { return env["BERTH_EXECUTOR"] == host })
	for index, worker := range s.awaitSettled(want) {
		if worker.Executor == host {
			t.Errorf("index %d is on the host that died", index)
		}
	}

	s.send("hello") // ignored
	s.send("2")
	maps.DeleteFunc(want, func(index, _ int32) bool { return index >= 2 })
	s.awaitSettled(want)
	s.send("-1")
	if err := s.process.Wait(); err != nil {
		t.Errorf("the job service exited with %v", err)
	}
	printed, err := os.ReadFile(filepath.Join(w.dir, "jobservice.log"))
	if want := "\n\"hello\" is not a number of workers\nwanted: 2\n"; err != nil || !strings.Contains(string(printed), want) {
		t.Errorf("the job service printed %q, want %q (%v)", printed, want, err)
	}
	s.awaitSettled(nil)
	w.quiesce()
}

// served is the name of a job that only this test uses.
var served = fmt.Sprintf("web-%d", os.Getpid())

// jobService is a process of the example job service.
type jobService struct {
	*world
	process *exec.Cmd
	input   io.WriteCloser
}

// buildExample builds the program of an example and returns its path.
func buildExample(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", program, "berth.dev/examples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

func (w *world) startJobService(program string, workers int) *jobService {
	w.Helper()
	log, err := os.OpenFile(filepath.Join(w.dir, "jobservice.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	s := &jobService{world: w}
	s.process = exec.Command(program, "-gateway", w.fleet.Gateway(), "-job", served, "-workers", strconv.Itoa(workers),
		"sleep", "3600")
	s.process.Stderr = log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.input, err = s.process.StdinPipe(); err != nil {
		w.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.kill)
	return s
}

func (s *jobService) send(line string) {
	s.Helper()
	if _, err := fmt.Fprintln(s.input, line); err != nil {
		s.Fatal(err)
	}
}

// kill kills the process if it still runs.
func (s *jobService) kill() {
	s.process.Process.Kill() //nolint:errcheck // it may have ended
	s.process.Wait()         //nolint:errcheck // it was killed
}

// killWorkers kills the processes of the workers that chosen selects by their environment.
func (s *jobService) killWorkers(chosen func(env map[string]string) bool) {
	s.Helper()
	killed := 0
	for pid, command := range processes("BERTH_JOB=" + served) {
		env := environment(pid)
		if !strings.HasPrefix(command, "sleep") || !chosen(env) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			s.Error(err)
		}
		killed++
	}
	if killed == 0 {
		s.Fatal("no worker to kill")
	}
}

// awaitSettled waits until exactly the given workers run and all other workers have ended.
// want has the worker number of each index. awaitSettled returns the workers.
func (s *jobService) awaitSettled(want map[int32]int32) map[int32]client.Worker {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	var last []client.Worker
	for change, err := range s.client.Watch(ctx, served) {
		if err != nil {
			s.Fatal(err)
		}
		last = change.Job.Workers("serve")
		running := map[int32]client.Worker{}
		numbers := map[int32]int32{}
		settled := true
		for _, w := range last {
			if !w.Ended {
				running[w.Index], numbers[w.Index] = w, w.Number
				settled = settled && w.State == berthv1.Assignment_RUNNING
			}
		}
		if settled && maps.Equal(numbers, want) {
			return running
		}
	}
	s.Fatalf("the workers did not become %v: %+v", want, last)
	return nil
}
