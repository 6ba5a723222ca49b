package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keptWorker is the agent's side of a worker under a keeper.
type keptWorker struct {
	driver *Process
	dir    string
	ended  func(Exit)
	// ready reports that the worker is ready. It is nil once that was reported.
	ready  func()
	keeper process
	// signals is set if the keeper accepts signals.
	signals bool
	volume  Volume
	user    user
	events  *os.File
	// settled is closed once the driver knows whether the process was started. If the
	// process was not started, notStarted is the reason, and badTask is set if the task is.
	settled    chan struct{}
	notStarted string
	badTask    bool

	// over is set once the worker has ended: its user may get another worker, so no file is
	// written for it any more.
	mu   sync.Mutex
	over bool
}

// watch reads the keeper's pipe until the pipe ends or the driver is closed.
func (p *Process) watch(k *keptWorker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watched[k] = struct{}{}
	p.watches.Go(func() {
		err := k.follow()
		p.mu.Lock()
		closed := p.closed
		delete(p.watched, k)
		if !closed {
			err = errors.Join(err, k.events.Close())
		}
		p.mu.Unlock()
		if !closed {
			k.conclude(err)
		}
	})
}

// follow returns nil once the keeper has exited. A byte in the pipe means that the state
// on disk has changed.
func (k *keptWorker) follow() error {
	var buffer [16]byte
	for {
		_, err := k.events.Read(buffer[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if has(k.dir, fileProcess) {
			k.settle("")
		}
		if k.ready != nil && has(k.dir, fileReady) {
			k.ready()
			k.ready = nil
		}
	}
}

// conclude determines how the worker ended, once the keeper has exited.
func (k *keptWorker) conclude(err error) {
	k.keeper.reap()
	var v verdict
	if err == nil {
		err = readJSON(filepath.Join(k.dir, fileExit), &v)
	}
	exit := Exit{Code: &v.Code, Signal: v.Signal, Stopped: v.Stopped}
	if err != nil {
		if exit, err = k.abandoned(); err != nil {
			// The driver was closed, or /proc cannot be read. The next agent adopts the worker and
			// repeats this.
			k.driver.log.Error("processes of a worker without a keeper still run", "dir", k.dir, "error", err)
			k.settle(err.Error())
			return
		}
	}
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	k.driver.freeUser(k.dir, k.volume, k.user)
	if v.NotStarted != "" {
		exit = Exit{Problem: v.NotStarted, BadTask: v.BadTask}
	}
	if !k.isSettled() && exit.Problem != "" {
		k.badTask = exit.BadTask
		k.settle(exit.Problem)
		return
	}
	k.settle("")
	if err := scrub(k.dir); err != nil {
		k.driver.log.Warn("environment, arguments and payload of an ended worker were not removed", "dir", k.dir, "error",
			err)
	}
	if exit.Problem == "" && !exit.Stopped && *exit.Code != 0 {
		exit.Problem = describe(*exit.Code, exit.Signal)
	}
	k.ended(exit)
}

// abandoned kills a worker whose keeper exited without a verdict.
func (k *keptWorker) abandoned() (Exit, error) {
	if ok, err := claim(k.dir, process{}); ok || err != nil {
		return Exit{Problem: "the keeper did not start: " + k.keeperErrors()}, nil
	}
	// killSession finds a process that left the session by its environment, unless the
	// process was started with another environment.
	var pl plan
	var variables []string
	if readJSON(filepath.Join(k.dir, fileWorker), &pl) == nil {
		variables = identityEnv(pl.Spec)
	}
	if err := killSession(k.keeper, variables, k.user, k.driver.closing); err != nil {
		return Exit{}, err
	}
	return Exit{Problem: "the keeper was killed, the exit code is unknown: " + k.keeperErrors(),
		Stopped: has(k.dir, fileStopping)}, nil
}

// keeperErrors returns the last bytes of the keeper's own error output.
func (k *keptWorker) keeperErrors() string {
	text, err := os.ReadFile(filepath.Join(k.dir, fileKeeper))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-512):])
}

// giveUp kills a keeper that does not start its worker in time. If the keeper has started
// the process, the kernel kills the process too.
func (k *keptWorker) giveUp() {
	if has(k.dir, fileProcess) {
		return // The process runs, and follow will read the notification.
	}
	k.driver.log.Warn("a worker did not start in time: killing its keeper", "dir", k.dir)
	k.keeper.kill()
}

// settle records whether the process was started. Only the first call counts.
func (k *keptWorker) settle(notStarted string) {
	if !k.isSettled() {
		k.notStarted = notStarted
		close(k.settled)
	}
}

func (k *keptWorker) isSettled() bool {
	select {
	case <-k.settled:
		return true
	default:
		return false
	}
}

// Stop implements Handle. It writes the request to the keeper's pipe. The keeper
// processes the request even if the agent has exited.
func (k *keptWorker) Stop(grace time.Duration, late bool) error {
	if late {
		if err := mark(k.dir, fileLate); err != nil {
			k.driver.log.Warn("file late not written", "error", err)
		}
	}
	if err := mark(k.dir, fileStopping); err != nil {
		k.driver.log.Warn("file stopping not written", "error", err)
	}
	err := k.request(fmt.Sprintf("%d\n", grace.Nanoseconds()))
	if errors.Is(err, errNoKeeper) {
		return nil // follow returns
	}
	return err
}

// errNoKeeper is the error of a request to a keeper that has exited.
var errNoKeeper = errors.New("the keeper has exited")

// request writes a line to the keeper's pipe.
func (k *keptWorker) request(line string) error {
	control, err := os.OpenFile(filepath.Join(k.dir, pipeControl), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return errNoKeeper // The pipe has no reader.
	}
	if err != nil {
		return err
	}
	_, err = control.WriteString(line)
	return errors.Join(err, control.Close())
}

// Forget implements Handle. The driver keeps the worker's output until a limit of
// ProcessConfig is exceeded. Forget does not wait for the removal of files.
func (k *keptWorker) Forget() {
	if err := mark(k.dir, fileForgotten); err != nil {
		k.driver.log.Warn("file forgotten not written", "error", err)
	}
	p := k.driver
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.watches.Go(func() { p.retire(k.dir, time.Now()) })
	}
}

func describe(code, signal int32) string {
	if signal != 0 {
		name := unix.SignalName(unix.Signal(signal))
		if name == "" {
			name = "no name"
		}
		return fmt.Sprintf("killed by signal %d (%s)", signal, name)
	}
	return fmt.Sprintf("exited with %d", code)
}
