package process

import (
	"context"
	"fmt"
	"sync"
)

// Group runs the goroutines of a process, its members. The first member that fails stops
// all of them. When Wait returns, all members have returned.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
}

// NewGroup returns an empty group that stops when ctx ends.
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Go runs a member in a new goroutine. The context of the member ends when the group
// stops. If a member returns nil, the other members continue.
func (g *Group) Go(name string, member func(ctx context.Context) error) {
	g.wait.Go(func() {
		if err := member(g.ctx); err != nil && g.ctx.Err() == nil {
			g.Fail(name, err)
		}
	})
}

// Context returns a context that ends when the group stops.
func (g *Group) Context() context.Context { return g.ctx }

// Stopping returns a channel that is closed when the group stops.
func (g *Group) Stopping() <-chan struct{} { return g.ctx.Done() }

// Fail stops the group as if a member with this name had failed.
func (g *Group) Fail(name string, err error) { g.cancel(&memberError{name, err}) }

// Stop stops the group: it ends the context of all members.
func (g *Group) Stop() { g.cancel(nil) }

// Wait waits until every member has returned, and returns the error of the first member
// that failed. It returns nil after an orderly stop.
func (g *Group) Wait() error {
	g.wait.Wait()
	g.cancel(nil)
	if failed, ok := context.Cause(g.ctx).(*memberError); ok {
		return failed
	}
	return nil
}

// memberError is the error of a member with a name.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return fmt.Sprintf("%s: %v", e.member, e.err) }
func (e *memberError) Unwrap() error { return e.err }
