package agent

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

type coded struct{}

func (coded) Error() string { return "coded" }
func (coded) ExitCode() int { return 7 }

// An executor says at its registration whether it starts tasks without a command.
func TestDriversThatNeedACommand(t *testing.T) {
	run := func(context.Context, Spec) error { return nil }
	for name, c := range map[string]struct {
		driver Driver
		needs  bool
	}{
		"processes":              {&Process{}, true},
		"functions":              {NewFunctions(map[string]Function{"f": run}), true},
		"a function for no name": {NewFunctions(map[string]Function{"": run}), false},
		"simulated":              {Simulated{}, false},
	} {
		if needs := needsCommand(c.driver); needs != c.needs {
			t.Errorf("%s: needs a command: %t, want %t", name, needs, c.needs)
		}
	}
}

// TestResultOfAFunctionEndsTheWorker checks the reported end of the worker for each way in
// which a function can return.
func TestResultOfAFunctionEndsTheWorker(t *testing.T) {
	for name, c := range map[string]struct {
		run     Function
		stop    bool
		state   model.WorkerState
		code    int32
		problem string
	}{
		"done": {run: func(context.Context, Spec) error { return nil }, state: model.WorkerCompleted},
		"fails": {run: func(context.Context, Spec) error { return errors.New("no disk") }, state: model.WorkerFailed,
			code: 1, problem: "no disk"},
		"has a code": {run: func(context.Context, Spec) error { return coded{} }, state: model.WorkerFailed, code: 7,
			problem: "coded"},
		"panics": {run: func(context.Context, Spec) error { panic("oh") }, state: model.WorkerFailed, code: 2,
			problem: "panic: oh"},
		"goes": {run: func(context.Context, Spec) error { runtime.Goexit(); return nil }, state: model.WorkerFailed,
			code: 2, problem: "the function did not return"},
		"is stopped": {run: func(ctx context.Context, _ Spec) error { <-ctx.Done(); return nil }, stop: true,
			state: model.WorkerEvicted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := NewFunctions(map[string]Function{"run": c.run})
				var ends []Exit
				handle, err := driver.Start(Spec{Command: "run"}, func(x Exit) { ends = append(ends, x) })
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if c.stop {
					if len(ends) > 0 {
						t.Fatalf("the worker ended before its stop: %+v", ends)
					}
					if err := errors.Join(handle.Stop(time.Second, false), handle.Stop(0, false)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if len(ends) != 1 || ends[0].state() != c.state || *ends[0].Code != c.code || ends[0].Problem != c.problem {
					t.Errorf("the worker ended with %+v", ends)
				}
				handle.Forget()
			})
		})
	}
}

// TestAFunctionThatDoesNotReturnHasNotEnded checks that no end is reported before the
// function returns, however short the grace period of the stop is.
func TestAFunctionThatDoesNotReturnHasNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		driver := NewFunctions(map[string]Function{"stubborn": func(context.Context, Spec) error { <-release; return nil }})
		ended := false
		handle, err := driver.Start(Spec{Command: "stubborn"}, func(Exit) { ended = true })
		if err != nil {
			t.Fatal(err)
		}
		if err := handle.Stop(time.Millisecond, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // simulated time
		if synctest.Wait(); ended {
			t.Fatal("ended is called while the function runs")
		}
		close(release)
		if synctest.Wait(); !ended {
			t.Error("ended is not called")
		}
	})
}

// TestFunctionsRefuseUnknownCommands checks that an unknown command is refused. It also
// checks that no end is reported after Close.
func TestFunctionsRefuseUnknownCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		driver := NewFunctions(map[string]Function{"run": func(context.Context, Spec) error { <-release; return nil }})
		if _, err := driver.Start(Spec{Command: "sh"}, nil); !fault.Is(err, fault.ReasonNotAllowed) {
			t.Errorf("another command: %v", err)
		}
		if _, err := driver.Start(Spec{Command: "run"}, func(Exit) { t.Error("ended is called after Close") }); err != nil {
			t.Fatal(err)
		}
		if err := driver.Close(); err != nil {
			t.Fatal(err)
		}
		close(release)
		synctest.Wait()
	})
}
