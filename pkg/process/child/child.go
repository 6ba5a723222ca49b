// Package child runs Berth's processes as child processes that never outlive their
// parent, for the demo, benchmarks and tests with real processes.
//
// It promises three things. No child outlives its parent, even if the parent is killed. A
// restarted child has the same addresses. The log of a child contains all of its output.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"berth.dev/pkg/process"
	"berth.dev/pkg/process/port"
)

// Process is a child process, which may be running or not.
type Process struct {
	// Name identifies the child. The child's log is the file Name.log in the directory
	// passed to New.
	Name string

	binary, dir string
	args        []string
	env         []string

	mu        sync.Mutex
	cmd       *exec.Cmd
	ended     chan struct{} // closed when cmd has exited
	err       error
	addresses process.Addresses
	ports     []*port.Held // of the listen flags, in their order
}

// New returns a child that is not started. binary and args are its program and arguments,
// and dir is the directory for its files. The arguments must not contain listen
// addresses, because Start chooses and reserves free ports.
func New(name, binary, dir string, env []string, args ...string) *Process {
	return &Process{Name: name, binary: binary, dir: dir, env: env, args: args}
}

// SetArgs replaces the arguments that New got. They count from the next start.
func (p *Process) SetArgs(args ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.args = args
}

// pollEvery is the interval at which the address file is polled.
const pollEvery = 2 * time.Millisecond

// Start starts the child and waits until it reports its addresses. If ctx ends first, the
// child is killed. listenFlags are the flags for the child's listen addresses: the
// address for calls, then the address for HTTP. Start reserves their ports, so that no
// other process gets a port while the child is down. If the child is running, Start
// returns an error.
func (p *Process) Start(ctx context.Context, listenFlags ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("%s is running already", p.Name)
	}
	file := filepath.Join(p.dir, p.Name+".addresses")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := append([]string{}, p.args...)
	for i, flag := range listenFlags {
		if i == len(p.ports) {
			held, err := port.Hold("127.0.0.1")
			if err != nil {
				return err
			}
			p.ports = append(p.ports, held)
		}
		args = append(args, flag, p.ports[i].Address())
	}
	args = append(args, "--address-file", file)
	if err := p.spawn(args); err != nil {
		return err
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if text, err := os.ReadFile(file); err == nil {
			return json.Unmarshal(text, &p.addresses)
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("%s exited during its start (%v): see %s", p.Name, p.err, p.LogFile())
		case <-ctx.Done():
			_ = p.cmd.Process.Kill() // this fails only if the child has exited
			<-p.ended
			return fmt.Errorf("%s did not report its addresses: %w; see %s", p.Name, ctx.Err(), p.LogFile())
		}
	}
}

// LogFile returns the file of the child's output.
func (p *Process) LogFile() string { return filepath.Join(p.dir, p.Name+".log") }

func (p *Process) spawn(args []string) error {
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // only the child writes to it
	cmd := exec.Command(p.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	// The child has its own process group, so that Ctrl-C reaches only the parent, which
	// stops its children in order. The kernel kills the child when the thread that started
	// the child ends. Therefore that thread waits for the child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(ended)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.cmd, p.ended = cmd, ended
	return nil
}

// Addresses returns the addresses of the child in its current or last run.
func (p *Process) Addresses() process.Addresses {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addresses
}

// Pid returns the process ID of the child, or 0 if the child was never started.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Running reports whether the child runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the child. It returns an error if the child has exited.
func (p *Process) Signal(signal os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(signal)
}

// Kill kills the child with SIGKILL and waits until the child has exited.
func (p *Process) Kill() {
	if p.Signal(syscall.SIGKILL) == nil || p.Pid() != 0 {
		<-p.Ended()
	}
}

// Ended returns a channel that is closed when the child has exited. It returns nil if the
// child was never started.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Stop sends SIGTERM to the child and waits until the child has exited. If ctx ends
// first, it kills the child.
func (p *Process) Stop(ctx context.Context) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s did not exit in time and was killed", p.Name)
	}
}
