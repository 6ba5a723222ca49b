package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/cmd/berth/fleet"
)

// kind is the outage of a name.
func kind(t *testing.T, name string) outage {
	t.Helper()
	i := slices.IndexFunc(outages, func(one outage) bool { return one.name == name })
	if i < 0 {
		t.Fatalf("there is no outage %q", name)
	}
	return outages[i]
}

// A call that hangs misses the maximum of the outage, though everything else goes
// through; how long nothing of the load did has no target.
func TestFiguresOfAnOutage(t *testing.T) {
	const figure, slow = "registry: " + writes, "registry: " + slowest
	o := &failoverOptions{ttl: 5 * time.Second, upserts: 20, grants: 8}
	var hung found
	for _, sample := range []struct {
		name string
		ms   time.Duration
	}{
		{calmPrefix + figure, 20}, {figure, 90}, {figure, 80}, {loadPrefix + figure, 130}, {calmPrefix + slow, 60}, {slow, 480}, {slow, 9000}, {"registry" + readySuffix, 1000},
	} {
		hung.note(sample.name, sample.ms*time.Millisecond)
	}
	for _, tt := range []struct {
		outage          string
		small           bool
		target, slowest string
	}{
		{"kill", false, "median <= 100, max <= 500: met", "max <= 500: MISSED"},
		{"kill", true, "median <= 160, max <= 180: met", "max <= 18000: met"},
		{"term", false, "max <= 300: met", "max <= 300: MISSED"},
		{"stop", false, "max <= 6000: met", "max <= 6000: MISSED"},
		{"cut", false, "max <= 6000: met", "max <= 6000: MISSED"},
		{"etcd", false, "max <= 500: met", "max <= 500: MISSED"},
	} {
		var small *Result
		if tt.small {
			r := &Run{Options: Options{Scale: 1}}
			hung.add(r, kind(t, "kill"), o, nil)
			small = &r.Result
		}
		r := &Run{Options: Options{Scale: 1}}
		hung.add(r, kind(t, tt.outage), o, small)
		var names []string
		targets := map[string]string{}
		for _, f := range r.Figures {
			names = append(names, f.Name)
			if f.Target != nil {
				targets[f.Name] = f.Target.String() + map[bool]string{true: ": met", false: ": MISSED"}[f.Target.Met]
			}
		}
		if want := []string{"calm, " + figure, figure, "load, " + figure, "calm, " + slow, slow, "registry: ready again"}; !slices.Equal(names, want) {
			t.Errorf("%s: figures %q, want %q", tt.outage, names, want)
		}
		if targets[figure] != tt.target || targets[slow] != tt.slowest || len(targets) != 2 {
			t.Errorf("%s: targets %q, want %q and %q", tt.outage, targets, tt.target, tt.slowest)
		}
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "50ms") || !strings.Contains(r.Notes[0], "125ms") {
			t.Errorf("%s: notes %q, want the spacing of the load", tt.outage, r.Notes)
		}
	}
}

// What is asked for at the moment of an outage is a figure only where that is one
// moment: links are cut one after the other.
func TestWhichOutagesHaveAMoment(t *testing.T) {
	for _, one := range outages {
		moment := one.strike != nil && !one.winds
		if want := slices.Contains([]string{"kill", "stop", "host"}, one.name); moment != want {
			t.Errorf("%s: %v, want %v", one.name, moment, want)
		}
		if one.often && !moment {
			t.Errorf("%s: what is told beside the load is of the load", one.name)
		}
	}
}

// The names fit into the table.
func TestNamesOfSlowestCallsFit(t *testing.T) {
	for _, service := range fleet.Services {
		if name := service + ": " + slowest; cut(name, 28) != name {
			t.Errorf("%s is too long", name)
		}
	}
}
