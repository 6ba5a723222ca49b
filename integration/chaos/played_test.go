package chaos

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// If a part did not run, the report names it with the reason. Only requested parts are
// tried.
func TestPartsLeftOut(t *testing.T) {
	const (
		noNamespaces = "namespaces: not permitted on this machine: no cable cuts and blackhole routes"
		noClock      = "clock: not permitted on this machine: no steps of the clock"
	)
	refuse := func() error { return errors.New("not here") }
	permit := func() error { return nil }
	for _, c := range []struct {
		name              string
		namespaces, clock bool
		permitted         func() error
		share             time.Duration // of each minute, for every run
		left              []string
	}{
		{"all", true, true, permit, 30 * time.Second, nil},
		{"nothing is permitted", true, true, refuse, time.Minute, []string{noNamespaces, noClock}},
		{"without the clock", true, false, permit, 30 * time.Second, []string{
			"clock: not requested (CHAOS_CLOCK=1, -clock): no steps of the clock",
		}},
		{"nothing is requested", false, false, func() error { t.Error("everything is played"); return nil }, time.Minute,
			[]string{
				"namespaces: not requested (-namespaces): no cable cuts and blackhole routes",
				"clock: not requested (CHAOS_CLOCK=1, -clock): no steps of the clock",
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
