package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// stepped changes the time of day of this machine for some time and sets it right again by
// the monotonic clock, so that no offset is left. All processes of the machine see it.
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

// clockPermitted sets the clock to its own time.
func clockPermitted() error { return setClock(time.Now()) }

func setClock(now time.Time) error {
	t := syscall.NsecToTimeval(now.UnixNano())
	if err := syscall.Settimeofday(&t); err != nil {
		return fmt.Errorf("cannot set the clock, run as root with CAP_SYS_TIME: %w", err)
	}
	return nil
}
