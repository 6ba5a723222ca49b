package agent

import (
	"bufio"
	"errors"
	"fmt"
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
)

// keeperVariable in the environment makes a program a keeper.
const keeperVariable = "BERTH_AGENT_KEEPER"

// eventsFD is the keeper's writing end of the events, open until the keeper's
// end: that is what tells the agent of it. It is never made an os.File, which
// would be closed once it is garbage, long before.
const eventsFD = 3

// ShimMain turns the process into the keeper of one worker, if it was started as
// one, and then does not return. Programs that use Process call it first thing
// in main, tests in TestMain.
//
// A keeper stands between agent and worker so that neither needs the other to
// live. It works in the worker's directory by relative paths: in one that was
// removed it can do nothing, however late it comes. It starts the process in a
// group of its own, takes orders to end it from a pipe, brings its output to
// files of bounded size, sees to the grace and to the end of all that the worker
// leaves behind, and writes down how it ended.
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
	// Not os.Exit: the agent waits for this end, and the race detector would put
	// it off by a second.
	unix.Exit(0)
}

// keep runs one worker from claim to verdict. Without a claim it does nothing.
func keep() error {
	// Caught, not ignored: what is ignored would be inherited by the worker.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	unix.CloseOnExec(eventsFD)
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
		return errors.Join(errors.New("not claimed"), err)
	}
	exit, err := reserveExit()
	if err != nil {
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
	cmd := &exec.Cmd{
		Path: p.Path, Args: append([]string{p.Spec.Command}, p.Spec.Args...), Env: p.Env, Dir: p.Dir,
		Stdout: stdout.write, Stderr: stderr.write,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return exit.write(verdict{NotStarted: err.Error()})
	}
	stdout.pump()
	stderr.pump()
	k := &keeper{me: me, group: cmd.Process.Pid}
	go k.obey(control)
	go k.reapOrphans(children)
	if err := k.announce(); err != nil {
		k.stop(0)
		_, _, gone := k.wait(cmd)
		return errors.Join(gone, exit.write(verdict{NotStarted: err.Error()}))
	}
	code, signal, err := k.wait(cmd)
	stdout.drain()
	stderr.drain()
	if err := scrub("."); err != nil {
		fmt.Fprintln(os.Stderr, "berth: keeper: the worker's environment, arguments and payload were not removed:", err)
	}
	return errors.Join(err, exit.write(verdict{Code: code, Signal: signal, Stopped: k.stopped}))
}

// keeper is the part of it that several goroutines share: one waits for the
// process, one for orders, one for orphans that die.
type keeper struct {
	me    process
	group int

	// reaping is held by whoever lists orphans, until it is done with them.
	reaping sync.Mutex

	mu      sync.Mutex
	stopped bool
	over    bool
	// killAt is when the group is killed, kill does it.
	killAt time.Time
	kill   *time.Timer
}

// announce writes down that the process runs, and has the agent look.
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

// obey reads orders: a line is the grace of a stop, in nanoseconds.
func (k *keeper) obey(control *os.File) {
	for scan := bufio.NewScanner(control); scan.Scan(); {
		if ns, err := strconv.ParseInt(strings.TrimSpace(scan.Text()), 10, 64); err == nil {
			k.stop(time.Duration(ns))
		}
	}
}

// stop signals the group once, and has it killed after the grace; a later order
// can only shorten it.
func (k *keeper) stop(grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	if !k.stopped {
		k.stopped = true
		k.signal(unix.SIGTERM)
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
			k.signal(unix.SIGKILL)
		}
	})
}

// signal reaches the group. The process was not reaped yet, so that the id is
// still that of its group.
func (k *keeper) signal(s unix.Signal) { _ = unix.Kill(-k.group, s) }

// wait waits for the process and ends what it left behind. It reaps the process
// last, so that the id of its group cannot be another's meanwhile.
func (k *keeper) wait(cmd *exec.Cmd) (code, signal int32, err error) {
	for unix.Waitid(unix.P_PID, k.group, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	k.mu.Lock()
	k.over = true
	k.signal(unix.SIGKILL)
	k.mu.Unlock()
	err = k.killOrphans()
	// The error repeats what the state says.
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int32(status.Signal()), int32(status.Signal()), err
	}
	return int32(status.ExitStatus()), 0, err
}
