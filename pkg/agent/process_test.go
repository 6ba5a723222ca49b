package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/testkit/porttest"
)

// childVariable makes the test binary run as an agent. Its value has the agent's directory
// and the address of the control plane.
const childVariable = "BERTH_TEST_AGENT"

// filesVariable limits the number of files that such an agent may open. It has 30 slots then.
const filesVariable = "BERTH_TEST_FILES"

// These limits apply to the output of the workers of such an agent: the size and the number
// of files.
const (
	childLogBytes = 1 << 20
	childLogKeep  = 3
)

func childMain() {
	dir, gateway, ok := strings.Cut(os.Getenv(childVariable), "|")
	if !ok {
		return
	}
	if err := child(dir, gateway); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(dir, gateway string) error {
	resources := resource.Vector{}
	if files, err := strconv.ParseUint(os.Getenv(filesVariable), 10, 64); err == nil {
		resources[resource.Slots] = 30
		// The keepers inherit the limit, as they do from a unit or a shell.
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}); err != nil {
			return err
		}
	}
	conn, err := grpc.NewClient(gateway, append(DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	driver, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, LogMaxBytes: childLogBytes,
		LogKeep: childLogKeep})
	if err != nil {
		return err
	}
	a, err := New(Config{ID: "host", Dir: dir, Driver: driver, Conn: conn, Resources: resources})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	NewServer(a).Register(server)
	go func() { _ = server.Serve(listener) }()
	fmt.Println(listener.Addr())
	return a.Run(context.Background())
}

// agentDir returns a directory for an agent that runs processes. Keepers outlive the agent
// and may still write to the directory when the test ends.
func agentDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = os.RemoveAll(dir) {
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// processAgent runs an agent in the test's process. Its workers are processes.
func processAgent(t *testing.T, dir string, allow ...string) (*Agent, *control, func()) {
	t.Helper()
	if len(allow) == 0 {
		allow = []string{AllowAll}
	}
	return runProcesses(t, ProcessConfig{Dir: dir, Allow: allow})
}

// runProcesses runs an agent with a driver of this configuration. Starts is the agent's
// Config.Starts if it is given.
func runProcesses(t *testing.T, cfg ProcessConfig, starts ...int) (*Agent, *control, func()) {
	t.Helper()
	var agent Config
	for _, n := range starts {
		agent.Starts = n
	}
	return runProcessesIn(t, newControl(50*time.Millisecond), cfg, agent)
}

// runProcessesIn is like runProcesses, with a control plane and an agent's configuration.
func runProcessesIn(t *testing.T, c *control, cfg ProcessConfig, of Config) (*Agent, *control, func()) {
	t.Helper()
	address, _ := c.serve(t, porttest.Hold(t))
	dir := cfg.Dir
	cfg.AllowEnv, cfg.Log = []string{AllowAll}, quiet()
	driver, err := NewProcess(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	incarnation := c.incarnations["host"] + 1
	c.mu.Unlock()
	of.ID, of.Dir, of.Driver, of.Conn, of.Log = "host", dir, driver, dial(t, address), quiet()
	a, stop := runAgent(t, of)
	c.registered(t, "host", incarnation)
	t.Cleanup(func() { _ = a.StopWorkers(t.Context()) }) // If a test failed, its workers may still run.
	return a, c, stop
}

// programPath returns the path of a program in PATH.
func programPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func submit(index int32, incarnation int64, command string, args ...string) *controlv1.SubmitTaskRequest {
	return &controlv1.SubmitTaskRequest{
		Term: 5, Executor: "host", Incarnation: incarnation, Attempt: 1,
		Worker: &controlv1.WorkerRef{Job: "job", Stage: "stage", Index: index, Number: 1, Epoch: 100, Uid: "1-1"},
		Task:   &berthv1.Task{Command: command, Args: args},
	}
}

func stopOf(s *controlv1.SubmitTaskRequest, grace time.Duration) *controlv1.StopTaskRequest {
	return &controlv1.StopTaskRequest{
		Term: s.Term, Executor: s.Executor, Incarnation: s.Incarnation, Worker: s.Worker, Grace: durationpb.New(grace),
	}
}

// trySubmit and tryStop send a request with the nonce of the agent's registration, as the
// assigner does.
func trySubmit(ctx context.Context, a *Agent, req *controlv1.SubmitTaskRequest) (*controlv1.SubmitTaskAnswer, error) {
	req.Nonce = a.ledger.nonce
	return a.SubmitTask(ctx, req)
}

func tryStop(ctx context.Context, a *Agent, req *controlv1.StopTaskRequest) (*controlv1.StopTaskAnswer, error) {
	req.Nonce = a.ledger.nonce
	return a.StopTask(ctx, req)
}

// signed is a client for an agent in another process. It adds the nonce with which the
// agent has registered with c.
type signed struct {
	controlv1.ExecutorClient
	c *control
}

func (s signed) nonce(id string) string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.nonces[id]
}

func (s signed) SubmitTask(ctx context.Context, req *controlv1.SubmitTaskRequest,
	o ...grpc.CallOption) (*controlv1.SubmitTaskAnswer, error) {
	req.Nonce = s.nonce(req.GetExecutor())
	return s.ExecutorClient.SubmitTask(ctx, req, o...)
}

func (s signed) StopTask(ctx context.Context, req *controlv1.StopTaskRequest,
	o ...grpc.CallOption) (*controlv1.StopTaskAnswer, error) {
	req.Nonce = s.nonce(req.GetExecutor())
	return s.ExecutorClient.StopTask(ctx, req, o...)
}

func mustSubmit(t *testing.T, a *Agent, req *controlv1.SubmitTaskRequest) *controlv1.SubmitTaskAnswer {
	t.Helper()
	answer, err := trySubmit(t.Context(), a, req)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func key(index int) string { return fmt.Sprintf("job/stage/%d.1@100", index) }

// fifo is a named pipe to which workers write lines.
type fifo struct {
	path string
	file *os.File
	scan *bufio.Scanner
}

func newFIFO(t *testing.T) *fifo {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &fifo{path, file, bufio.NewScanner(file)}
}

func (f *fifo) write(t *testing.T, text string) {
	t.Helper()
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func (f *fifo) line(t *testing.T) string {
	t.Helper()
	if err := f.file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !f.scan.Scan() {
		t.Fatal("no line: ", f.scan.Err())
	}
	return f.scan.Text()
}

func (f *fifo) pid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(f.line(t))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func alive(pid int) bool {
	s, err := readStat(pid)
	return err == nil && s.state != 'Z'
}

// awaitExit waits until a process that was killed has exited. The kernel delivers the
// signal before the process exits, and frees its memory before it becomes a zombie.
func awaitExit(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has exited
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(30 * time.Second); ; {
		wait := int(time.Until(deadline).Milliseconds())
		switch n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(wait, 0)); {
		case n > 0:
			return
		case n == 0 && err == nil:
			t.Fatalf("%d runs", pid)
		}
	}
}

// A worker gets its identity and its payload through the environment. Its output goes to
// files, and its exit code is reported.
func TestProcessEnvironment(t *testing.T) {
	dir := agentDir(t)
	a, c, _ := processAgent(t, dir)
	req := submit(3, 1, "sh", "-c", `echo $BERTH_JOB $BERTH_STAGE $BERTH_WORKER_INDEX $BERTH_WORKER_NUMBER $BERTH_EXECUTOR $BERTH_EPOCH $MORE; cat $BERTH_PAYLOAD_FILE; pwd; echo oops >&2; exit 7`)
	req.Task.Env = map[string]string{"MORE": "more", "BERTH_JOB": "forged"}
	req.Task.Payload = []byte("payload\n")
	if got := mustSubmit(t, a, req); got.Worker.State != berthv1.Assignment_RUNNING &&
		got.Worker.State != berthv1.Assignment_FAILED {
		t.Fatal(got)
	}
	w := c.awaitState(t, key(3), "FAILED")
	if w.GetExitCode() != 7 || w.Error != "exited with 7" || w.Uid != "1-1" {
		t.Error(w)
	}
	worker := filepath.Join(dir, "workers", "job", "stage.3.1.100")
	text, err := os.ReadFile(filepath.Join(worker, "stdout"))
	if want := "job stage 3 1 host 100 more\npayload\n" + worker + "/work\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
	if text, err := os.ReadFile(filepath.Join(worker, "stderr")); err != nil || string(text) != "oops\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestProcessCompleted(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	mustSubmit(t, a, submit(0, 1, "true"))
	if w := c.awaitState(t, key(0), "COMPLETED"); w.ExitCode == nil || *w.ExitCode != 0 || w.Error != "" {
		t.Error(w)
	}
}

// If a worker cannot be started, the agent refuses it. The worker leaves nothing behind,
// and the control plane may request it again.
func TestProcessRefused(t *testing.T) {
	dir := agentDir(t)
	script := filepath.Join(dir, "broken")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, _, _ := processAgent(t, dir, programPath(t, "true"), script, "/no/such/program", "/etc/passwd")
	for _, c := range []struct {
		command string
		want    fault.Reason
	}{
		{"sh", fault.ReasonNotAllowed},
		{"/tmp/true", fault.ReasonNotAllowed},
		{"../true", fault.ReasonNotAllowed},
		{"no-such-command", fault.ReasonNotAllowed},
		{"/no/such/program", fault.ReasonStartFailed},
		{"/etc/passwd", fault.ReasonStartFailed},
		{script, fault.ReasonStartFailed},
		{"", fault.ReasonRequired},
	} {
		if _, err := trySubmit(t.Context(), a, submit(0, 1, c.command)); !fault.Is(err, c.want) {
			t.Errorf("%q: %v, want %s", c.command, err, c.want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "workers", "*")); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	mustSubmit(t, a, submit(0, 1, "true"))
}

// If a worker ignores the signal, it is killed after the grace period together with its
// children.
func TestProcessStubborn(t *testing.T) {
	t.Parallel() // most of its time it only waits
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	req := submit(0, 1, "sh", "-c", `trap 'echo heard >'`+f.path+` TERM; (trap "" TERM; echo $(exec sh -c 'echo $PPID') >`+f.path+`; while :; do sleep 1000; done) & while :; do wait; done`)
	mustSubmit(t, a, req)
	grandchild := f.pid(t)
	answer, err := tryStop(t.Context(), a, stopOf(req, 3*time.Second))
	if err != nil || answer.Worker.State != berthv1.Assignment_EVICTING &&
		answer.Worker.State != berthv1.Assignment_EVICTED {
		t.Fatal(answer, err)
	}
	if heard := f.line(t); heard != "heard" {
		t.Error(heard)
	}
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+9 {
		t.Error(w)
	}
	if alive(grandchild) {
		t.Errorf("%d runs", grandchild)
	}
	if _, err := trySubmit(t.Context(), a, req); !fault.Is(err, fault.ReasonStopped) {
		t.Error(err)
	}
}

// When a worker has ended, its remaining processes are killed, whatever session they belong
// to.
func TestProcessLeftovers(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	gate := newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", `sleep 1000 & echo $! >`+f.path+`
		(setsid sh -c 'echo $$ >`+f.path+`; exec sleep 1000' &)
		read go <`+gate.path))
	left := []int{f.pid(t), f.pid(t)}
	for _, pid := range left {
		if !alive(pid) {
			t.Errorf("%d is dead", pid)
		}
	}
	gate.write(t, "go\n")
	c.awaitState(t, key(0), "COMPLETED")
	for _, pid := range left {
		if _, err := readStat(pid); err == nil {
			t.Errorf("%d runs, or is a zombie", pid)
		}
	}
}

// If an orphaned process exits while its worker runs, the process is reaped.
func TestProcessOrphans(t *testing.T) {
	a, _, _ := processAgent(t, agentDir(t))
	f := newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", `orphan=$( (sh -c 'echo $$' &) )
		while [ -e /proc/$orphan ]; do sleep 0.01; done
		echo reaped >`+f.path))
	if got := f.line(t); got != "reaped" {
		t.Error(got)
	}
}

// Workers survive `kill -9` of their agent. The next agent adopts the workers, reads the
// exit codes of those that have ended, and can stop the others.
func TestProcessAdoption(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	f := newFIFO(t)
	executor, kill := startChild(t, c, dir, gateway)
	c.registered(t, "host", 1)
	var pids []int
	var gates []*fifo
	var orders []*controlv1.SubmitTaskRequest
	for i := range int32(3) {
		gates = append(gates, newFIFO(t))
		order := submit(i, 1, "sh", "-c", "echo $$ >"+f.path+"; read code <"+gates[i].path+"; exit $code")
		if _, err := executor.SubmitTask(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		orders = append(orders, order)
		pids = append(pids, f.pid(t))
	}
	stopped := submit(9, 1, "true")
	if _, err := executor.StopTask(t.Context(), stopOf(stopped, 0)); err != nil {
		t.Fatal(err)
	}
	kill()
	gates[0].write(t, "41\n") // One worker ends while no agent runs.
	awaitFile(t, filepath.Join(dir, "workers", "job", "stage.0.1.100", fileExit))

	executor, _ = startChild(t, c, dir, gateway)
	c.registered(t, "host", 2)
	if w := c.awaitState(t, key(0), "FAILED"); w.GetExitCode() != 41 {
		t.Error(w)
	}
	for _, i := range []int{1, 2} {
		c.awaitState(t, key(i), "RUNNING")
		if !alive(pids[i]) {
			t.Errorf("worker %d is dead", i)
		}
		orders[i].Incarnation = 2
		answer, err := executor.SubmitTask(t.Context(), orders[i])
		if err != nil || answer.Worker.State != berthv1.Assignment_RUNNING {
			t.Error(i, answer, err)
		}
	}
	// The promises of the first agent bind the second agent.
	stopped.Incarnation = 2
	if _, err := executor.SubmitTask(t.Context(), stopped); err == nil || !strings.Contains(err.Error(), "STOPPED") {
		t.Error(err)
	}
	gates[1].write(t, "42\n")
	if w := c.awaitState(t, key(1), "FAILED"); w.GetExitCode() != 42 {
		t.Error(w)
	}
	if _, err := executor.StopTask(t.Context(), stopOf(orders[2], time.Minute)); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(2), "EVICTED"); w.GetExitCode() != 128+15 {
		t.Error(w)
	}
	if alive(pids[2]) {
		t.Error("alive after EVICTED")
	}
}

// If a keeper is killed, its worker is killed too. So are the processes that the worker
// started in sessions of their own.
func TestProcessKeeperKilled(t *testing.T) {
	dir := agentDir(t)
	a, c, _ := processAgent(t, dir)
	f := newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c",
		"sleep 1000 & echo $! >"+f.path+"; setsid sh -c 'echo $$ >"+f.path+"; exec sleep 1000' & echo $$ >"+f.path+"; wait"))
	pids := []int{f.pid(t), f.pid(t), f.pid(t)}
	var keeper process
	if err := readJSON(filepath.Join(dir, "workers", "job", "stage.0.1.100", fileClaim), &keeper); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(keeper.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if w := c.awaitState(t, key(0), "FAILED"); w.ExitCode != nil {
		t.Error(w)
	}
	for _, pid := range pids {
		awaitExit(t, pid)
	}
	if alive(keeper.PID) {
		t.Error("the keeper runs")
	}
	if _, err := readStat(keeper.PID); err == nil {
		t.Error("the keeper is a zombie")
	}
}

// An agent may die at any point of a start. From every state on disk, the next agent either
// adopts the worker or makes sure that the worker never runs. This also holds if the keeper
// starts only afterwards.
func TestProcessDiedWhileStarting(t *testing.T) {
	spec := specOf("host", identity{}, submit(0, 1, "sh"))
	id, err := identityOf(submit(0, 1, "").Worker)
	if err != nil {
		t.Fatal(err)
	}
	spec.Worker, spec.Epoch = id.Worker, id.Epoch
	f := newFIFO(t)
	pl := plan{Spec: spec, Path: "/bin/sh", Dir: "/", Env: os.Environ()}
	pl.Spec.Args = []string{"-c", "echo ran >" + f.path}

	for _, step := range []string{"directory", "plan", "claimed", "given up"} {
		t.Run(step, func(t *testing.T) {
			root := agentDir(t)
			dir := workerPath(root, id)
			p, err := NewProcess(ProcessConfig{Dir: root, Allow: []string{AllowAll}, Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.makeDir(dir); err != nil {
				t.Fatal(err)
			}
			if step != "directory" {
				if err := prepare(dir, pl); err != nil {
					t.Fatal(err)
				}
			}
			// One step has a dead keeper. In another step, the agent died while it gave up the
			// start.
			by, claimed := map[string]process{"claimed": {PID: 1 << 30}, "given up": {}}[step]
			if claimed {
				if ok, err := claim(dir, by); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			// The late keeper of the dead agent works in this directory, even after the directory is
			// renamed.
			late := exec.Command("/proc/self/exe")
			late.Env = []string{keeperVariable + "=1"}
			held, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			late.Dir = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), held.Fd())
			events, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer events.Close()
			late.ExtraFiles = []*os.File{events}

			ends := make(chan Exit, 1)
			adopted, err := p.Adopt(nil, func(_ Spec, x Exit) { ends <- x })
			if err != nil {
				t.Fatal(err)
			}
			if step == "claimed" {
				if len(adopted) != 1 {
					t.Fatal(adopted)
				}
				if x := <-ends; x.state() != model.WorkerFailed || x.Code != nil {
					t.Error(x)
				}
			} else {
				if len(adopted) != 0 {
					t.Fatal(adopted)
				}
				if _, err := os.Stat(dir); !os.IsNotExist(err) {
					t.Error("left behind: ", err)
				}
			}
			if err := late.Run(); err == nil {
				t.Error("a late keeper did something")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	// A slow keeper keeps its claim until the keeper has exited.
	root := agentDir(t)
	dir := workerPath(root, id)
	p, err := NewProcess(ProcessConfig{Dir: root, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.makeDir(dir), prepare(dir, pl)); err != nil {
		t.Fatal(err)
	}
	slow, err := os.OpenFile(filepath.Join(dir, pipeEvents), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.Adopt(nil, nil)
		done <- errors.Join(err, p.Close())
	}()
	awaitFile(t, filepath.Join(dir, fileClaim))
	if !has(dir, fileWorker) {
		t.Error("removed while the keeper runs")
	}
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("left behind: ", err)
	}
	// None of the workers ran, so this line is the only one.
	f.write(t, "end\n")
	if got := f.line(t); got != "end" {
		t.Errorf("a worker %s", got)
	}
}

// StopWorkers returns once no worker runs. Close alone does not stop workers.
func TestProcessClose(t *testing.T) {
	dir := agentDir(t)
	f := newFIFO(t)
	a, _, stop := processAgent(t, dir)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", "echo $$ >"+f.path+"; sleep 1000"))
	pid := f.pid(t)
	if other, err := New(Config{ID: "host", Dir: dir, Driver: Simulated{}, Conn: a.cfg.Conn}); err == nil {
		t.Error("two agents on one directory")
		_ = other.Close()
	}
	stop()
	if !alive(pid) {
		t.Fatal("Close ended the worker")
	}
	if _, err := trySubmit(t.Context(), a, submit(1, 1, "true")); !fault.Is(err, fault.ReasonUnavailable) {
		t.Error(err)
	}
	a, _, _ = processAgent(t, dir)
	if err := a.StopWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("alive after StopWorkers")
	}
}

// awaitFile waits until the file exists.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	watch := os.NewFile(uintptr(fd), "inotify")
	defer watch.Close()
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MOVED_TO|unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	if err := watch.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for buffer := make([]byte, 4096); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if _, err := watch.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
}

// startChild starts an agent in a process of its own. It returns a client of the agent and
// a function that kills the agent.
func startChild(t *testing.T, c *control, dir, gateway string) (controlv1.ExecutorClient, func()) {
	t.Helper()
	return startChildWith(t, c, dir, gateway, os.Stderr)
}

// startChildWith does the same with a place for the log, and further variables.
func startChildWith(t *testing.T, c *control, dir, gateway string, log io.Writer,
	env ...string) (controlv1.ExecutorClient, func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), childVariable+"="+dir+"|"+gateway), env...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	scan := bufio.NewScanner(out)
	if !scan.Scan() {
		t.Fatal("the agent did not start")
	}
	return signed{controlv1.NewExecutorClient(dial(t, scan.Text())), c}, kill
}
