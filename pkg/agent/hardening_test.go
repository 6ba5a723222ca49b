package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/testkit/porttest"
)

// base counts the resources that an agent must release: its open files, its goroutines
// and its child processes, including zombies.
type base struct{ files, goroutines, children int }

func countBase(t *testing.T) base {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	me := os.Getpid()
	children, err := processes(func(_ int, s stat) bool { return s.parent == me })
	if err != nil {
		t.Fatal(err)
	}
	return base{len(files), runtime.NumGoroutine(), len(children)}
}

// Workers fork, double-fork and leave grandchildren that have the workers' pipes open. The
// workers end, are stopped, are killed or cannot be started. None of them leaves a process,
// a file or a goroutine in the agent or on the host.
func TestProcessLeavesNothing(t *testing.T) {
	a, c, _ := processAgent(t, agentDir(t))
	f, gate := newFIFO(t), newFIFO(t)
	// Each worker leaves a child, a daemon in a session of its own, and a grandchild of each.
	// All of these processes have the output of the worker open and write their process IDs.
	leave := `report() { echo $(exec sh -c 'echo $PPID') >` + f.path + `; }
		(report; trap "" TERM HUP; sleep 1000 & wait; sleep 1000) &
		(setsid sh -c 'trap "" TERM HUP; echo $$ >` + f.path + `; (sleep 1000 & sleep 1000); sleep 1000' &)
		read go <` + gate.path + `; `
	mustSubmit(t, a, submit(0, 1, "true"))
	c.awaitState(t, key(0), "COMPLETED")
	before := countBase(t)
	const workers = 6
	var left []int
	for i := range int32(workers) {
		order := submit(1+i, 1, "sh", "-c", leave+[]string{"exit 0", "kill -9 $$", ""}[i%3])
		mustSubmit(t, a, order)
		left = append(left, f.pid(t), f.pid(t))
		if i%3 < 2 {
			gate.write(t, "go\n")
		} else if _, err := tryStop(t.Context(), a, stopOf(order, 0)); err != nil {
			t.Fatal(err)
		}
		c.awaitState(t, key(1+int(i)), []string{"COMPLETED", "FAILED", "EVICTED"}[i%3])
		if _, err := trySubmit(t.Context(), a, submit(100, 1, "/no/such/program")); err == nil {
			t.Fatal("started")
		}
	}
	for _, pid := range left {
		if _, err := readStat(pid); err == nil {
			t.Errorf("%d runs, or is a zombie", pid)
		}
	}
	// The agent may need some more time to clean up an ended worker. The number of goroutines
	// of its stream varies, but it does not grow by one for each worker.
	c.await(t, "all to be given back", func() bool {
		after := countBase(t)
		return after.files <= before.files && after.goroutines < before.goroutines+workers &&
			after.children <= before.children
	})
}

// A worker that ignores the signal is killed after its grace period, even if its agent dies
// before. The next agent reports the end.
func TestProcessStubbornWithoutAgent(t *testing.T) {
	t.Parallel() // most of its time it only waits
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	f := newFIFO(t)
	executor, kill := startChild(t, c, dir, gateway)
	c.registered(t, "host", 1)
	order := submit(0, 1, "sh", "-c", `trap 'echo heard >`+f.path+`' TERM; echo $$ >`+f.path+`; while :; do sleep 1000 & wait; done`)
	if _, err := executor.SubmitTask(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	pid := f.pid(t)
	const grace = 3 * time.Second
	began := time.Now()
	if _, err := executor.StopTask(t.Context(), stopOf(order, grace)); err != nil {
		t.Fatal(err)
	}
	kill()
	if heard := f.line(t); heard != "heard" {
		t.Error(heard)
	}
	awaitFile(t, filepath.Join(dir, "workers", "job", "stage.0.1.100", fileExit))
	if took := time.Since(began); took < grace {
		t.Errorf("killed after %v of a grace of %v", took, grace)
	}
	if alive(pid) {
		t.Error("it runs")
	}
	startChild(t, c, dir, gateway)
	if w := c.awaitState(t, key(0), "EVICTED"); w.GetExitCode() != 128+9 {
		t.Error(w)
	}
}

// If the directory of the job has this file, TestMain makes the job's keepers hang before
// they do anything.
const fileHang = "hang"

// If a start takes too long, the agent gives it up safely: no part of the worker runs, and
// the start may be repeated.
func TestProcessStartThatHangs(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	driver, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, StartTimeout: 300 * time.Millisecond,
		Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := runAgent(t, Config{ID: "host", Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	hang := filepath.Join(dir, "workers", "job", fileHang)
	if err := os.MkdirAll(filepath.Dir(hang), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hang, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	before := countBase(t)
	if _, err := trySubmit(t.Context(), a, submit(0, 1, "true")); !fault.Is(err, fault.ReasonStartFailed) {
		t.Error(err)
	}
	if after := countBase(t); after.children > before.children || after.files > before.files {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	driver.cfg.StartTimeout = time.Minute // long enough for a slow machine
	mustSubmit(t, a, submit(0, 1, "true"))
	c.awaitState(t, key(0), "COMPLETED")
}

// bystander starts an unrelated process in a session of its own.
func bystander(t *testing.T) process {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := processOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The process ID of a dead keeper may be reused, and after a reboot of the host its start
// time may recur too. A process belongs to the worker only if its ID, start time and boot
// are the same. An unrelated process is neither killed nor treated as the worker.
func TestPitfallRecycledProcessID(t *testing.T) {
	for _, c := range []struct {
		name   string
		forge  func(process) process
		killed bool
	}{
		{"another start", func(p process) process { p.Start -= 5; return p }, false},
		{"another boot", func(p process) process { p.Boot = "an earlier one"; return p }, false},
		{"the same", func(p process) process { return p }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			leader := bystander(t)
			root := agentDir(t)
			id, err := identityOf(submit(0, 1, "").Worker)
			if err != nil {
				t.Fatal(err)
			}
			dir := workerPath(root, id)
			p, err := NewProcess(ProcessConfig{Dir: root, Allow: []string{AllowAll}, Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.makeDir(dir); err != nil {
				t.Fatal(err)
			}
			if err := prepare(dir, plan{Spec: Spec{Executor: "host", Worker: id.Worker, Epoch: id.Epoch}}); err != nil {
				t.Fatal(err)
			}
			if ok, err := claim(dir, c.forge(leader)); err != nil || !ok {
				t.Fatal(ok, err)
			}
			c.forge(leader).kill()
			if c.killed {
				if err := unix.Waitid(unix.P_PID, leader.PID, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
					t.Error(err)
				}
			}
			ends := make(chan Exit, 1)
			adopted, err := p.Adopt(nil, func(_ Spec, x Exit) { ends <- x })
			if err != nil || len(adopted) != 1 {
				t.Fatal(adopted, err)
			}
			if x := <-ends; x.state() != model.WorkerFailed || x.Code != nil {
				t.Error(x)
			}
			if !c.killed && !alive(leader.PID) {
				t.Error("a stranger was killed")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// killSession kills the processes of a keeper's session. It does not kill the processes of
// another session with the same number.
func TestKillSession(t *testing.T) {
	leader := bystander(t)
	other := leader
	other.Start++
	boot := leader
	boot.Boot = "an earlier one"
	for _, p := range []process{other, boot, {PID: -1}, {PID: 1}} {
		if err := killSession(p, nil, user{}, nil); err != nil {
			t.Error(err)
		}
		if !alive(leader.PID) {
			t.Fatalf("killed for %+v", p)
		}
	}
}

// A process that was started without an environment is not mistaken for one that is just
// executing another program, for which killSession waits.
func TestProcessesWithoutEnvironment(t *testing.T) {
	bare := exec.Command("sleep", "1000")
	bare.Env = []string{}
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bare.Process.Kill()
		_ = bare.Wait()
	}()
	for isExecuting(bare.Process.Pid) { // until it runs its program
		time.Sleep(lookEvery)
	}
	began := time.Now()
	if err := killSession(process{PID: -1}, []string{"BERTH_UID=none"}, user{}, nil); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > maxLooks*lookEvery {
		t.Errorf("a process without an environment delayed the kill for %v", took)
	}
}

// If a host loses power, its claims may be unreadable afterwards. The agent starts
// nevertheless, kills what runs of the worker, and reports that the worker has ended.
func TestClaimThatCannotBeRead(t *testing.T) {
	dir := agentDir(t)
	a, _, stop := processAgent(t, dir)
	f := newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c",
		"setsid sh -c 'echo $$ >"+f.path+"; exec sleep 1000' & echo $$ >"+f.path+"; wait"))
	pids := []int{f.pid(t), f.pid(t)}
	stop()
	worker := filepath.Join(dir, "workers", "job", "stage.0.1.100")
	var keeper process
	if err := readJSON(filepath.Join(worker, fileClaim), &keeper); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(keeper.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	keeper.reap()
	if err := os.WriteFile(filepath.Join(worker, fileClaim), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	_, c, _ := processAgent(t, dir)
	if w := c.awaitState(t, key(0), "FAILED"); w.ExitCode != nil {
		t.Error(w)
	}
	for _, pid := range pids {
		awaitExit(t, pid)
	}
}

// counting is a driver of processes that counts how many starts are in progress.
type counting struct {
	*Process
	mu        sync.Mutex
	now, most int
}

func (d *counting) Start(spec Spec, ended func(Exit)) (Handle, error) {
	d.add(1)
	defer d.add(-1)
	return d.Process.Start(spec, ended)
}

func (d *counting) add(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now += n
	d.most = max(d.most, d.now)
}

// An agent gets the start requests of many workers at once. The number of starts in
// progress stays within its limit, and all workers run and end.
func TestProcessStartsAreLimited(t *testing.T) {
	const workers = 50
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	address, _ := c.serve(t, porttest.Hold(t))
	processes, err := NewProcess(ProcessConfig{Dir: dir, Allow: []string{AllowAll}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	driver := &counting{Process: processes}
	a, _ := runAgent(t, Config{ID: "host", Dir: dir, Driver: driver, Conn: dial(t, address), Log: quiet()})
	c.registered(t, "host", 1)
	var wg sync.WaitGroup
	for i := range int32(workers) {
		wg.Go(func() {
			if _, err := trySubmit(t.Context(), a, submit(i, 1, "true")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c.await(t, "all to end", func() bool {
		done := 0
		for _, w := range c.workers {
			if w.State == berthv1.Assignment_COMPLETED {
				done++
			}
		}
		return done == workers
	})
	if driver.most > defaultStarts() {
		t.Errorf("%d starts at once", driver.most)
	}
}
