package chaos

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// errNoClock says that the time of day cannot be set here.
var errNoClock = errors.New("the clock cannot be set here, which takes root and CAP_SYS_TIME")

// stepped sets the time of day of this machine off by so much for some time, and
// right again: by the monotonic clock, which is never set, so that nothing is left
// of it. Whatever else runs here sees it too.
func stepped(ctx context.Context, by, last time.Duration) error {
	begun := time.Now()
	if err := setClock(begun.Add(by)); err != nil {
		return errNoClock
	}
	select {
	case <-time.After(last):
	case <-ctx.Done():
	}
	return setClock(begun.Add(time.Since(begun)))
}

func setClock(now time.Time) error {
	t := syscall.NsecToTimeval(now.UnixNano())
	return syscall.Settimeofday(&t)
}
