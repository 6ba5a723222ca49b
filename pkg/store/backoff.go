package store

import (
	"context"
	"time"
)

const (
	backoffFirst = 5 * time.Millisecond
	// backoffMax is what a recovery of etcd may go unnoticed for.
	backoffMax = 250 * time.Millisecond
)

// backoff spaces out what is repeated: 5 ms, doubling up to 250 ms. Whoever
// repeats here is one of a handful of replicas, so there is no jitter.
type backoff struct{ next time.Duration }

// Backoff is the pause before an attempt, the second one being 1.
func Backoff(attempt int) time.Duration {
	return min(backoffFirst<<min(attempt-1, 16), backoffMax)
}

// Sleep waits for a time or until ctx is over, whose error it then answers.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backoff) sleep(ctx context.Context) error {
	d := max(b.next, backoffFirst)
	b.next = min(2*d, backoffMax)
	return Sleep(ctx, d)
}

func (b *backoff) reset() { b.next = 0 }
