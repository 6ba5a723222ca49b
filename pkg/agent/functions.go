package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"berth.dev/api/fault"
)

// Function is a worker that is a function of the program which runs the agent.
// It ends by returning: nil is exit code 0, an error that has a method
// ExitCode() int that code, any other error 1. ctx ends when the worker is told
// to stop.
type Function func(ctx context.Context, spec Spec) error

// Functions is a driver whose workers are functions, so that a program can be
// its own executor: a task's command is the name of one of them. What is not
// named is refused like a command that is not allowed.
//
// A function cannot be killed. One that does not return once it was told to
// stop is told of as EVICTING for as long as it takes, and its capacity stays
// in use: that is what the end of a worker promises. Workers end with the
// program, and the next one reports that they are gone.
type Functions struct {
	named map[string]Function

	mu     sync.Mutex
	closed bool
}

// NewFunctions makes a driver of the functions by their names.
func NewFunctions(named map[string]Function) *Functions { return &Functions{named: named} }

// panicCode is what a Go program that panics exits with.
const panicCode = 2

// Check implements Checker: nobody waits in line to be told that there is no such
// function.
func (f *Functions) Check(spec Spec) error {
	if f.named[spec.Command] == nil {
		return fault.New(fault.Precondition, fault.ReasonNotAllowed, "this program has no function %q", spec.Command)
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
		// A function that leaves by runtime.Goexit returns nothing.
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
	return running(stop), nil
}

// runFunction is one worker's life. A panic ends the worker and not the agent.
func runFunction(ctx context.Context, run Function, spec Spec) (exit Exit) {
	defer func() {
		if problem := recover(); problem != nil {
			exit = exitOf(panicCode, ctx.Err() != nil)
			exit.Problem = fmt.Sprintf("panic: %v", problem)
		}
	}()
	err := run(ctx, spec)
	exit = exitOf(0, ctx.Err() != nil)
	if err != nil {
		exit = exitOf(1, ctx.Err() != nil)
		exit.Problem = err.Error()
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			exit = Exit{Code: new(int32(coded.ExitCode())), Stopped: exit.Stopped, Problem: exit.Problem}
		}
	}
	return exit
}

// Adopt implements Driver: nothing outlives the program.
func (f *Functions) Adopt(func(Spec, Exit)) ([]Adopted, error) { return nil, nil }

// Close implements Driver.
func (f *Functions) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// running is a worker's handle: how it is told to stop.
type running context.CancelFunc

// Stop implements Handle. The grace is the function's own to keep.
func (r running) Stop(time.Duration) error {
	r()
	return nil
}

// Forget has nothing to let go of.
func (r running) Forget() {}
