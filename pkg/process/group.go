package process

import (
	"context"
	"fmt"
	"sync"
)

// Group runs the goroutines that a process owns. The first that fails stops
// all of them; none is left when Wait returns.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
}

// NewGroup makes an empty group that stops when ctx ends.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Go runs a member. Its context ends when the group is to stop. A member that
// returns nil has done its work and stops nothing.
func (g *Group) Go(name string, member func(ctx context.Context) error) {
	g.wait.Go(func() {
		if err := member(g.ctx); err != nil && g.ctx.Err() == nil {
			g.Fail(name, err)
		}
	})
}

// Context ends when the group is to stop.
func (g *Group) Context() context.Context { return g.ctx }

// Stopping is closed when the group is to stop.
func (g *Group) Stopping() <-chan struct{} { return g.ctx.Done() }

// Fail stops the group as a member with this name would that failed.
func (g *Group) Fail(name string, err error) { g.cancel(&memberError{name, err}) }

// Stop asks all members to end.
func (g *Group) Stop() { g.cancel(nil) }

// Wait waits until every member has returned. It answers the error of the
// member that failed first; an orderly stop is no error.
func (g *Group) Wait() error {
	g.wait.Wait()
	g.cancel(nil)
	if failed, ok := context.Cause(g.ctx).(*memberError); ok {
		return failed
	}
	return nil
}

// memberError is an error that names the member it came from.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return fmt.Sprintf("%s: %v", e.member, e.err) }
func (e *memberError) Unwrap() error { return e.err }
