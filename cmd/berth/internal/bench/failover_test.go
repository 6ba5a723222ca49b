package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
)

// named returns the outage with a name.
func named(t *testing.T, name string) outage {
	t.Helper()
	i := slices.IndexFunc(outages, func(one outage) bool { return one.name == name })
	if i < 0 {
		t.Fatalf("unknown outage %q", name)
	}
	return outages[i]
}

// TestFiguresOfAnOutage checks that a call that hangs misses the maximum of the outage
// even if all other calls succeed. The longest time in which no step of the load
// succeeded has no target.
func TestFiguresOfAnOutage(t *testing.T) {
	const figure, slow = "registry: " + noWrite, "registry: " + slowest
	var hung outageSamples
	for _, sample := range []struct {
		name, against string
		ms            time.Duration
	}{
		{calmPrefix + figure, "", 20}, {figure, calmPrefix + figure, 90}, {figure, calmPrefix + figure, 80},
		{loadPrefix + figure, "", 130}, {calmPrefix + slow, "", 60}, {slow, calmPrefix + slow, 480},
		{slow, calmPrefix + slow, 9000}, {"registry" + readySuffix, "", 1000},
	} {
		hung.note(sample.name, sample.against, sample.ms*time.Millisecond)
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
		f := &failing{outage: named(t, tt.outage), grants: grantsPerSecond}
		if tt.small {
			small := &Run{Options: Options{Scale: 1}}
			hung.add(small, f)
			f.small = &failing{figures: small.Figures}
		}
		r := &Run{Options: Options{Scale: 1}}
		hung.add(r, f)
		var names []string
		targets := map[string]string{}
		for _, f := range r.Figures {
			names = append(names, f.Name)
			if f.Target != nil {
				targets[f.Name] = f.Target.String() + map[bool]string{true: ": met", false: ": MISSED"}[f.Target.Met]
			}
		}
		if want := []string{"calm, " + figure, figure, "load, " + figure, "calm, " + slow, slow,
			"registry: ready again"}; !slices.Equal(names, want) {
			t.Errorf("%s: figures %q, want %q", tt.outage, names, want)
		}
		if targets[figure] != tt.target || targets[slow] != tt.slowest || len(targets) != 2 {
			t.Errorf("%s: targets %q, want %q and %q", tt.outage, targets, tt.target, tt.slowest)
		}
		if notes := strings.Join(r.Notes, ""); tt.outage != "kill" && notes != "" ||
			tt.outage == "kill" && (!strings.Contains(notes, "50ms") || !strings.Contains(notes, "125ms")) {
			t.Errorf("%s: notes %q, want the intervals of the load for kills only", tt.outage, r.Notes)
		}
	}
}

// TestFailoverWorkloads checks that the kills run a second time with more executors.
func TestFailoverWorkloads(t *testing.T) {
	for _, tt := range []struct {
		flags failoverFlags
		want  string
	}{
		{failoverFlags{rounds: 1, otherRounds: 1, growth: 10},
			"kill 1000, kill 10000, term 1000, rolling 1000, stop 1000, cut 1000, host 1000, etcd 1000"},
		{failoverFlags{rounds: 1, otherRounds: 1, growth: 3, outages: []string{"etcd", "kill"}},
			"kill 1000, kill 3000, etcd 1000"},
		{failoverFlags{rounds: 1, otherRounds: 1, outages: []string{"kill"}}, "kill 1000"},
		{failoverFlags{otherRounds: 1}, "--rounds"},
		{failoverFlags{rounds: 1}, "--other-rounds"},
		{failoverFlags{rounds: 1, otherRounds: 1, outages: []string{"none"}}, "--outages"},
	} {
		list, err := tt.flags.workloads()
		var got []string
		for _, w := range list {
			_, sizes, _ := strings.Cut(w.Shows, "; ")
			executors, _, _ := strings.Cut(sizes, " ")
			got = append(got, w.Name+" "+executors)
		}
		if err != nil {
			got = []string{fault.Of(err).Fields[0].Name}
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%+v: %q, want %q", tt.flags, got, tt.want)
		}
	}
}

// TestOutagesWithProbes checks that the latency of a probe is a figure only for outages
// that begin in one moment. The outage "cut" does not, because it cuts links one after
// another.
func TestOutagesWithProbes(t *testing.T) {
	for _, one := range outages {
		probe := one.strike != nil && !one.lingers
		if want := slices.Contains([]string{"kill", "stop", "host"}, one.name); probe != want {
			t.Errorf("%s: %v, want %v", one.name, probe, want)
		}
		if one.often && !probe {
			t.Errorf("%s: rounds without a probe", one.name)
		}
	}
}

// TestSlowestCallNamesFit checks that the names of figures fit into the first column of
// the table.
func TestSlowestCallNamesFit(t *testing.T) {
	for _, service := range fleet.Services {
		if name := service + ": " + slowest; cut(name, 28) != name {
			t.Errorf("%s: name too long", name)
		}
	}
}
