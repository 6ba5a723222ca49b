package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// stepped sets the time of day of this machine off by so much for some time, and
// right again: by the monotonic clock, which is never set, so that nothing is left
// of it. Whatever else runs here sees it too.
func stepped(ctx context.Context, by, last time.Duration) error {
	begun := time.Now()
	if err := setClock(begun.Add(by)); err != nil {
		return err
	}
	select {
	case <-time.After(last):
	case <-ctx.Done():
	}
	return setClock(begun.Add(time.Since(begun)))
}

// clockPermitted sets the clock to what it shows.
func clockPermitted() error { return setClock(time.Now()) }

func setClock(now time.Time) error {
	t := syscall.NsecToTimeval(now.UnixNano())
	if err := syscall.Settimeofday(&t); err != nil {
		return fmt.Errorf("the clock cannot be set here, which takes root and CAP_SYS_TIME: %w", err)
	}
	return nil
}
