package internal

import (
	"context"

	"berth.dev/api/fault"
)

// maxLoopCalls is how many calls of one kind the loop handles at once. It is enough for
// the largest round, and a small part of the loop's inbox.
const maxLoopCalls = 1024

// concurrentJoins is how many executors a replica announces at once. It is small enough
// that each announcement succeeds before its deadline, and large enough for a group
// commit.
const concurrentJoins = 256

// limiter limits how many calls of one kind are handled at once. Other calls wait in
// order, until their deadline. All agents may call at once. With the limiter they do not
// fill the inbox of the loop, so the calls of clients and scheduling cycles are handled.
type limiter chan struct{}

func newLimiter(size int) limiter { return make(limiter, size) }

// do calls fn when a place is free. If no place becomes free in time, it returns an error
// without calling fn.
func (l limiter) do(ctx context.Context, fn func() error) error {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
		return fault.New(fault.Exhausted, fault.ReasonOverloaded,
			"timed out behind other calls: at most %d are handled at once", cap(l)).Because(ctx.Err())
	}
	defer func() { <-l }()
	return fn()
}
