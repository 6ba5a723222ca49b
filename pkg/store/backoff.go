package store

import (
	"context"
	"time"
)

const (
	backoffFirst = 5 * time.Millisecond
	// backoffMax is also the longest time until a retry notices that etcd has recovered.
	backoffMax = 250 * time.Millisecond
)

// Backoff returns the pause after the nth failed attempt: 5 ms, doubling up to 250 ms.
// Only a few replicas retry, so the pause needs no jitter.
func Backoff(n int) time.Duration {
	return min(backoffFirst<<min(n-1, 16), backoffMax)
}

// Sleep waits for a duration or until ctx ends, and returns the error of ctx.
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
