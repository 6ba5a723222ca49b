package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// Function is a worker that is a function of the program that runs the agent. The worker
// ends when the function returns. The exit code is 0 if the function returns nil. If the
// error has a method ExitCode() int, the exit code is the result of this method;
// otherwise it is 1. ctx is canceled when the worker is stopped. With readiness REPORTED,
// the worker is STARTING until the function calls spec.Ready.
type Function func(ctx context.Context, spec Spec) error

// Functions is a driver whose workers are functions, so that a program can run workers in
// its own process. The command of a task is the name of a function. The driver refuses
// any other command as not allowed.
//
// The driver cannot kill a function. A stopped worker stays EVICTING until its function
// returns, and its capacity stays in use, because a reported end promises that the worker
// does not run. The workers end when the program exits, and the next run of the program
// does not list them in its complete report.
type Functions struct {
	named map[string]Function

	mu     sync.Mutex
	closed bool
}

// NewFunctions returns a driver whose workers are the given functions. The keys are the
// commands.
func NewFunctions(named map[string]Function) *Functions { return &Functions{named: named} }

// panicCode is the exit code of a Go program that panics.
const panicCode = 2

// Check implements Checker.
func (f *Functions) Check(spec Spec) error {
	if f.named[spec.Command] == nil {
		return fault.New(fault.Precondition, fault.ReasonNotAllowed, "the executor's program has no function %q",
			spec.Command)
	}
	return nil
}

// NeedsCommand reports whether a task must have a command: no function has the empty name.
func (f *Functions) NeedsCommand() bool { return f.named[""] == nil }

// AllowLists returns a digest of the names of the functions.
func (f *Functions) AllowLists() string {
	return digestOf("functions", slices.Collect(maps.Keys(f.named)))
}

// Start implements Driver.
func (f *Functions) Start(spec Spec, ended func(Exit)) (Handle, error) {
	if err := f.Check(spec); err != nil {
		return nil, err
	}
	run := f.named[spec.Command]
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		// This is the result if the function does not return, because it calls runtime.Goexit.
		exit := exitOf(panicCode, false)
		exit.Problem = "the function did not return"
		defer func() {
			f.mu.Lock()
			closed := f.closed
			f.mu.Unlock()
			if !closed {
				exit.Stopped = exit.Stopped || ctx.Err() != nil
				ended(exit)
			}
		}()
		exit = runFunction(ctx, run, spec)
	}()
	return cancelHandle(stop), nil
}

// runFunction runs a worker. A panic ends the worker, not the agent.
func runFunction(ctx context.Context, run Function, spec Spec) (exit Exit) {
	defer func() {
		if problem := recover(); problem != nil {
			exit = exitOf(panicCode, ctx.Err() != nil)
			exit.Problem = fmt.Sprintf("panic: %v", problem)
		}
	}()
	err := run(ctx, spec)
	if err == nil {
		return exitOf(0, ctx.Err() != nil)
	}
	code := 1
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		code = coded.ExitCode()
	}
	exit = exitOf(int32(code), ctx.Err() != nil)
	exit.Problem = err.Error()
	return exit
}

// Adopt implements Driver: no worker outlives the program.
func (f *Functions) Adopt(func(Spec), func(Spec, Exit)) ([]Adopted, error) { return nil, nil }

// Close implements Driver.
func (f *Functions) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// cancelHandle is the handle of a worker that is a function.
type cancelHandle context.CancelFunc

// Stop implements Handle. It ignores the grace period, because a function cannot be
// killed.
func (cancel cancelHandle) Stop(time.Duration, bool) error {
	cancel()
	return nil
}

// Forget implements Handle.
func (cancelHandle) Forget() {}
