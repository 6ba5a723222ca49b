package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// kept is a worker under its keeper, as the agent sees it.
type kept struct {
	driver *Process
	dir    string
	ended  func(Exit)
	keeper process
	events *os.File
	// settled is closed once it is known whether the process was started;
	// notStarted says why not.
	settled    chan struct{}
	notStarted string
}

// watch follows the keeper's pipe until it ends, or the driver does.
func (p *Process) watch(k *kept) {
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

// follow returns nil once the keeper is gone. A byte in the pipe means that the
// state on disk moved on.
func (k *kept) follow() error {
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
	}
}

// conclude finds out how it ended, once the keeper is gone.
func (k *kept) conclude(err error) {
	k.keeper.reap()
	var v verdict
	if err == nil {
		err = readJSON(filepath.Join(k.dir, fileExit), &v)
	}
	exit := Exit{Code: &v.Code, Signal: v.Signal, Stopped: v.Stopped}
	if err != nil {
		if exit, err = k.abandoned(); err != nil {
			// Only the driver's end interrupts: the next agent goes on.
			k.driver.log.Error("a worker without a keeper", "dir", k.dir, "error", err)
			k.settle(err.Error())
			return
		}
	}
	if v.NotStarted != "" {
		exit = Exit{Problem: v.NotStarted}
	}
	if !k.started() && exit.Problem != "" {
		k.settle(exit.Problem)
		return
	}
	k.settle("")
	if err := scrub(k.dir); err != nil {
		k.driver.log.Warn("the environment, arguments and payload of a worker that has ended were not removed", "dir", k.dir, "error", err)
	}
	if exit.Problem == "" && !exit.Stopped && *exit.Code != 0 {
		exit.Problem = describe(*exit.Code, exit.Signal)
	}
	k.ended(exit)
}

// abandoned makes sure that a worker whose keeper left no verdict is gone.
func (k *kept) abandoned() (Exit, error) {
	if ok, err := claim(k.dir, process{}); ok || err != nil {
		return Exit{Problem: "the keeper did not come up: " + k.words()}, nil
	}
	// What cut itself loose from the session is known by its environment, unless it
	// cleared that too.
	var pl plan
	var named []string
	if readJSON(filepath.Join(k.dir, fileWorker), &pl) == nil {
		named = marks(pl.Spec)
	}
	if err := killSession(k.keeper, named, k.driver.closing); err != nil {
		return Exit{}, err
	}
	return Exit{Problem: "the keeper is gone, nobody saw the process end: " + k.words(), Stopped: has(k.dir, fileStopping)}, nil
}

// words is the end of what the keeper said, for the one who asks why.
func (k *kept) words() string {
	text, err := os.ReadFile(filepath.Join(k.dir, fileKeeper))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-512):])
}

// giveUp ends a keeper that does not come up. What it has started goes with it.
func (k *kept) giveUp() {
	if has(k.dir, fileProcess) {
		return // It was on its way to say so.
	}
	k.driver.log.Warn("a worker does not come up: its start is given up", "dir", k.dir)
	k.keeper.kill()
}

// settle says whether the process was started; the first answer counts.
func (k *kept) settle(notStarted string) {
	if !k.started() {
		k.notStarted = notStarted
		close(k.settled)
	}
}

func (k *kept) started() bool {
	select {
	case <-k.settled:
		return true
	default:
		return false
	}
}

// Stop implements Handle. The keeper reads the order when it gets to it, also
// after the agent's death.
func (k *kept) Stop(grace time.Duration) error {
	if err := mark(k.dir, fileStopping); err != nil {
		k.driver.log.Warn("stop not marked", "error", err)
	}
	control, err := os.OpenFile(filepath.Join(k.dir, pipeControl), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil // Nobody reads: the keeper is gone, which is about to be seen.
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(control, "%d\n", grace.Nanoseconds())
	return errors.Join(err, control.Close())
}

// Forget implements Handle. The output is kept for a while.
func (k *kept) Forget() {
	if err := mark(k.dir, fileForgotten); err != nil {
		k.driver.log.Warn("end not marked as known", "error", err)
	}
	k.driver.retire(k.dir, time.Now())
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
