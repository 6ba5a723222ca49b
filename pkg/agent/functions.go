package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// Function is a worker that is a function of the program that runs the agent. The worker
// ends when the function returns. Its exit code is 0 for nil, the code of an error with
// a method ExitCode() int, and 1 for any other error. ctx ends when the worker is
// stopped.
type Function func(ctx context.Context, spec Spec) error

// Functions is a driver whose workers are functions, so that a program can be its own
// executor. The command of a task is the name of a function. The driver refuses any
// other command as not allowed.
//
// A function cannot be killed. A worker that was stopped stays EVICTING until its
// function returns, and its capacity stays in use: an end promises that the worker does
// not run. Workers end with the program, and the next run reports them as absent.
type Functions struct {
	named map[string]Function

	mu     sync.Mutex
	closed bool
}

// NewFunctions returns a driver of the functions, by name.
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

// Start implements Driver.
func (f *Functions) Start(spec Spec, ended func(Exit)) (Handle, error) {
	if err := f.Check(spec); err != nil {
		return nil, err
	}
	run := f.named[spec.Command]
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		// A function that calls runtime.Goexit does not return.
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
func (f *Functions) Adopt(func(Spec, Exit)) ([]Adopted, error) { return nil, nil }

// Close implements Driver.
func (f *Functions) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// cancelHandle is the handle of a worker that is a function.
type cancelHandle context.CancelFunc

// Stop implements Handle. A function cannot be killed after the grace.
func (cancel cancelHandle) Stop(time.Duration) error {
	cancel()
	return nil
}

// Forget implements Handle.
func (cancelHandle) Forget() {}
