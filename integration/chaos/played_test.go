package chaos

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// What was not played is told, and why; and only what is asked for is tried.
func TestWhatIsNotPlayedIsTold(t *testing.T) {
	const (
		noNamespaces = "namespaces: not permitted here: cable cuts and blackhole routes were not played"
		noClock      = "clock: not permitted here: steps of the time of day were not played"
	)
	refuse := func() error { return errors.New("not here") }
	permit := func() error { return nil }
	for _, c := range []struct {
		name              string
		namespaces, clock bool
		permitted         func() error
		share             time.Duration // of a minute, for each run
		left              []string
	}{
		{"all", true, true, permit, 30 * time.Second, nil},
		{"nothing is permitted", true, true, refuse, time.Minute, []string{noNamespaces, noClock}},
		{"without the clock", true, false, permit, 30 * time.Second, []string{
			"clock: not asked for (CHAOS_CLOCK=1, -clock): steps of the time of day were not played",
		}},
		{"nothing is asked for", false, false, func() error { t.Error("it is tried"); return nil }, time.Minute, []string{
			"namespaces: not asked for (-namespaces): cable cuts and blackhole routes were not played",
			"clock: not asked for (CHAOS_CLOCK=1, -clock): steps of the time of day were not played",
		}},
	} {
		p := newParts(c.namespaces, c.clock)
		p.namespaces.permitted, p.clock.permitted = c.permitted, c.permitted
		p.try()
		if got := p.left(); !slices.Equal(got, c.left) {
			t.Errorf("%s: %q, want %q", c.name, got, c.left)
		}
		if got := p.share(time.Minute); got != c.share {
			t.Errorf("%s: each run has %v of a minute, want %v", c.name, got, c.share)
		}
	}
}
