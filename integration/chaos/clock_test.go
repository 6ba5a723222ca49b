package chaos

import (
	"testing"
	"time"
)

// The time of day is wrong during a step of the clock, and correct afterwards.
func TestSteppedClock(t *testing.T) {
	if !*clock {
		t.Skip("-clock is not set: the test would disturb other processes of the machine")
	}
	if err := clockPermitted(); err != nil {
		t.Skip(err)
	}
	begun := time.Now()
	// offset returns the difference between the time of day and the time of day without steps.
	offset := func() time.Duration {
		now := time.Now()
		return now.Round(0).Sub(begun.Round(0)) - now.Sub(begun)
	}
	for _, by := range []time.Duration{-90 * time.Second, time.Minute} {
		off := make(chan time.Duration, 1)
		time.AfterFunc(50*time.Millisecond, func() { off <- offset() })
		if err := stepped(t.Context(), by, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		const near = 20 * time.Millisecond // shorter than any step, longer than it takes to set the clock
		if got := <-off; (got - by).Abs() > near {
			t.Errorf("the clock was off by %v, want %v", got, by)
		}
		if got := offset(); got.Abs() > near {
			t.Errorf("the clock is still off by %v", got)
		}
	}
}
