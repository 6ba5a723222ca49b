package chaos

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// stepped changes the time of day of this machine for some time. Then it sets the right
// time again, which it takes from the monotonic clock so that no offset remains. The
// change affects all processes of the machine.
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

// clockPermitted returns an error if this process may not set the clock. It sets the
// clock to the current time.
func clockPermitted() error { return setClock(time.Now()) }

func setClock(now time.Time) error {
	t := syscall.NsecToTimeval(now.UnixNano())
	if err := syscall.Settimeofday(&t); err != nil {
		return fmt.Errorf("cannot set the clock, run as root with CAP_SYS_TIME: %w", err)
	}
	return nil
}
