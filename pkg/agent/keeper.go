package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"berth.dev/pkg/model"
)

// keeperVariable is the environment variable that makes a program a keeper.
const keeperVariable = "BERTH_AGENT_KEEPER"

// eventsFD is the keeper's write end of the events pipe. It stays open until the keeper
// exits, so that the agent learns of the exit when it reads the end of the pipe. The
// keeper must not wrap eventsFD in an os.File: the garbage collector closes an
// unreachable os.File.
const eventsFD = 3

// ShimMain runs the keeper of one worker if the driver started this process as a keeper;
// then it does not return. Otherwise it does nothing. A program that uses Process must
// call ShimMain at the start of main, and a test at the start of TestMain.
//
// Because a keeper stands between agent and worker, the agent and the worker can exit
// independently. The keeper runs in the worker's directory and uses relative paths.
// Therefore a late keeper has no effect after the directory was removed. The keeper
// starts the worker's process in a new process group, as the worker's user and unable to
// gain privileges, copies the output of the process to files of bounded size, and writes the
// exit code. The keeper reads stop requests from a pipe, sends the stop signal of the task to the
// process group and kills it after the grace period. When the process has exited by itself, the
// keeper kills every process that the worker left behind. After a stop request these processes
// have the rest of the grace period.
func ShimMain() {
	if os.Getenv(keeperVariable) == "" {
		return
	}
	// The kernel kills the worker when the thread that started it ends.
	runtime.LockOSThread()
	if err := keep(); err != nil {
		fmt.Fprintln(os.Stderr, "berth: keeper:", err)
		os.Exit(1)
	}
	// unix.Exit instead of os.Exit, because the agent waits for the exit and the race
	// detector delays os.Exit by a second.
	unix.Exit(0)
}

// keep claims one worker, runs it and writes its verdict. If the worker is already
// claimed, keep returns an error and does not start the process.
func keep() error {
	// The keeper catches these signals instead of ignoring them, because the worker would
	// inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	var p plan
	if err := readJSON(fileWorker, &p); err != nil {
		return err
	}
	control, err := os.OpenFile(pipeControl, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	me, err := processOf(os.Getpid())
	if err != nil {
		return err
	}
	if ok, err := claim(".", me); err != nil || !ok {
		return errors.Join(errors.New("the worker is already claimed"), err)
	}
	if err := reserveVerdict(); err != nil {
		return err
	}
	stdout, err := newOutput(fileStdout, p.Log)
	if err != nil {
		return err
	}
	stderr, err := newOutput(fileStderr, p.Log)
	if err != nil {
		return err
	}
	readiness, err := openReadiness(p)
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: p.Path, Args: append([]string{p.Spec.Command}, p.Spec.Args...), Env: p.Env, Dir: p.Dir,
		Stdout: stdout.write, Stderr: stderr.write,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL},
	}
	err = p.User.contain()
	if id := int(p.User.ID); id != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: p.User.ID, Gid: p.User.ID}
		// The worker may open its output again, as /dev/stdout.
		err = errors.Join(err, stdout.write.Chown(id, id), stderr.write.Chown(id, id))
	}
	if err != nil {
		return writeVerdict(verdict{NotStarted: err.Error()})
	}
	if err := cmd.Start(); err != nil {
		noDir := p.User.enters(p.Dir)
		v := verdict{BadTask: blamesTask(err) && noDir == nil}
		if noDir != nil {
			err = noDir // The error of the kernel names the program.
		} else if p.User.ID != 0 {
			err = fmt.Errorf("as user %d, which must be able to run the program and to reach %s: %w", p.User.ID, p.Dir, err)
		}
		v.NotStarted = err.Error()
		return writeVerdict(v)
	}
	stdout.pump()
	stderr.pump()
	k := &keeper{me: me, group: cmd.Process.Pid, user: p.User, changed: make(chan struct{}, 1),
		stopSignal: numberOf(p.Spec.StopSignal)}
	go k.readControl(control)
	go k.reapOrphans(children)
	if err := k.announce(); err != nil {
		k.stop(0)
		_, _, left := k.wait(cmd)
		return errors.Join(left, writeVerdict(verdict{NotStarted: err.Error()}))
	}
	if readiness != nil {
		go k.readReadiness(readiness)
	}
	code, signal, err := k.wait(cmd)
	stdout.drain()
	stderr.drain()
	if err := scrub("."); err != nil {
		fmt.Fprintln(os.Stderr, "berth: keeper: the worker's environment, arguments and payload were not removed:", err)
	}
	return errors.Join(err, writeVerdict(verdict{Code: code, Signal: signal, Stopped: k.stopped}))
}

// keeper is the state that the keeper's goroutines share. One goroutine waits for the
// process, one reads requests, one reads the readiness, and one reaps orphans that have exited.
type keeper struct {
	me    process
	group int
	user  user
	// stopSignal is the signal that asks the worker to stop.
	stopSignal unix.Signal

	// reaping is locked while a goroutine lists and reaps orphans.
	reaping sync.Mutex
	// changed has an element if orphans may have exited, or the grace period is over, since
	// awaitOrphans looked.
	changed chan struct{}

	mu sync.Mutex
	// stopped is set once the keeper signalled the process group to stop. exited is set once
	// the process has exited. killed is set once the grace period is over. over is set once
	// the keeper kills whatever is left.
	stopped, exited, killed, over bool
	// killAt is the time at which the timer kill kills the process group.
	killAt time.Time
	kill   *time.Timer
	// delivered has the request IDs of the signals that the worker got.
	delivered requestIDs
}

// announce writes the file process and notifies the agent.
func (k *keeper) announce() error {
	p, err := processOf(k.group)
	if err != nil {
		return err
	}
	if err := writeJSON(fileProcess, p); err != nil {
		return err
	}
	_, err = unix.Write(eventsFD, []byte{'.'})
	return err
}

// openReadiness opens the pipe to which the worker writes when it is ready. It returns nil
// if the worker need not report. The keeper has a writing end too, so that reading does not
// end when the worker closes the pipe.
func openReadiness(p plan) (*os.File, error) {
	if !p.Spec.loads() {
		return nil, nil
	}
	return os.OpenFile(pipeReadiness, os.O_RDWR, 0)
}

// readReadiness waits for a line of the worker, and notifies the agent. The text of the
// line does not matter. readReadiness then discards whatever else the worker writes, so
// that the worker never blocks; it keeps none of it.
func (k *keeper) readReadiness(pipe io.Reader) {
	buffer := make([]byte, 4096)
	for ready := false; ; {
		n, err := pipe.Read(buffer)
		if err != nil {
			fmt.Fprintln(os.Stderr, "berth: keeper: the readiness of the worker is not read:", err)
			return
		}
		if ready || bytes.IndexByte(buffer[:n], '\n') < 0 {
			continue
		}
		ready = true
		if err := os.Rename(fileReady+".new", fileReady); err != nil {
			fmt.Fprintln(os.Stderr, "berth: keeper: the readiness of the worker is not recorded:", err)
		}
		_, _ = unix.Write(eventsFD, []byte{'.'}) // The keeper has both ends of the pipe, so nothing prevents this.
	}
}

// readControl reads requests. Each line is the grace period of a stop in nanoseconds, or a signal.
func (k *keeper) readControl(control *os.File) {
	for scan := bufio.NewScanner(control); scan.Scan(); {
		if request, ok := strings.CutPrefix(scan.Text(), signalWord); ok {
			k.deliver(request)
		} else if ns, err := strconv.ParseInt(strings.TrimSpace(scan.Text()), 10, 64); err == nil {
			k.stop(time.Duration(ns))
		}
	}
}

// stop signals the process group once and schedules its kill after the grace period. A
// later request can only move the kill to an earlier time.
func (k *keeper) stop(grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over || k.exited && !k.stopped {
		return // The process has exited by itself, or nothing is left.
	}
	if !k.stopped {
		k.stopped = true
		k.signal(k.stopSignal)
	}
	at := time.Now().Add(grace)
	if k.kill != nil && !at.Before(k.killAt) {
		return
	}
	if k.kill != nil {
		k.kill.Stop()
	}
	k.killAt = at
	k.kill = time.AfterFunc(grace, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.over {
			k.killed = true
			k.killAll()
			k.notify()
		}
	})
}

// numberOf returns the number of a signal on this host, or SIGTERM for the empty name and for one
// that the host does not have.
func numberOf(name model.Signal) unix.Signal {
	if n := unix.SignalNum(string(name)); n != 0 {
		return n
	}
	return unix.SIGTERM
}

// notify makes awaitOrphans look again.
func (k *keeper) notify() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// signal signals the process group. wait reaps the process only after the last signal, so
// the ID still belongs to this group.
func (k *keeper) signal(s unix.Signal) { _ = unix.Kill(-k.group, s) }

// killAll kills the process, which may have left its group, and the group. If the worker
// has its own user, killAll kills all its processes.
func (k *keeper) killAll() {
	_ = unix.Kill(k.group, unix.SIGKILL)
	k.signal(unix.SIGKILL)
	if err := k.user.kill(); err != nil {
		fmt.Fprintln(os.Stderr, "berth: keeper:", err)
	}
}

// closeOnExec makes sure that the worker inherits no open file, not even those that the
// agent has inherited.
func closeOnExec() error {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= eventsFD {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// wait waits until the process has exited and kills every process that it left behind.
// After a stop request it first waits until there is none, or the grace period is over. It
// reaps the process last, so that the kernel cannot reuse the ID of its group before.
func (k *keeper) wait(cmd *exec.Cmd) (code, signal int32, err error) {
	for unix.Waitid(unix.P_PID, k.group, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	k.mu.Lock()
	k.exited = true
	stopped := k.stopped
	k.mu.Unlock()
	if stopped {
		k.awaitOrphans()
	}
	k.mu.Lock()
	k.over = true
	k.killAll()
	k.mu.Unlock()
	err = k.killOrphans()
	// The error only repeats what ProcessState contains.
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int32(status.Signal()), int32(status.Signal()), err
	}
	return int32(status.ExitStatus()), 0, err
}
