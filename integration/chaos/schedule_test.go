package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A seed determines its schedule.
func TestSeedDeterminesSchedule(t *testing.T) {
	one, same, other := Plan(1, time.Minute, shape()), Plan(1, time.Minute, shape()), Plan(2, time.Minute, shape())
	if !slices.Equal(one, same) {
		t.Error("one seed gave two schedules")
	}
	if slices.Equal(one, other) {
		t.Error("two seeds gave the same schedule")
	}
}

// A schedule of ten minutes has every kind of fault. All faults are in time and have
// existing targets.
func TestScheduleHasEveryKind(t *testing.T) {
	const duration = 10 * time.Minute
	known := []string{"etcd", "gateway", "orders", "proof", simName, hostName, "client"}
	known = append(known, services...)
	whole := shape()
	whole.Hosts, whole.Clock = true, true
	done := map[Kind]int{}
	etcdQuiet := time.Duration(0)
	last := time.Duration(0)
	for _, f := range Plan(1, duration, whole) {
		done[f.Kind]++
		if f.At < last || f.At+f.For > duration {
			t.Errorf("%v is out of order or too late", f)
		}
		last = f.At
		about := strings.HasPrefix(f.Target, "etcd") && (f.Kind == Kill || f.Kind == Freeze || f.Kind.partitioned())
		if about && f.At < etcdQuiet {
			t.Errorf("%v leaves etcd without a quorum", f)
		}
		if about {
			etcdQuiet = f.At + f.For
		}
		for _, end := range strings.Split(f.Target, "→") {
			if f.Target != "" && !slices.ContainsFunc(known, func(name string) bool { return strings.HasPrefix(end, name) }) {
				t.Errorf("%v names the unknown target %q", f, end)
			}
		}
	}
	for _, kind := range []Kind{Kill, Terminate, Freeze, Cut, CutTo, CutFrom, Isolate, Refuse, Slow, Lossy, CutMember,
		CutMemberSend, CutMemberReceive, MoveEtcd, Compact, Rolling, StepClock} {
		if done[kind] == 0 {
			t.Errorf("%v: never", kind)
		}
	}
}

// An upgrade changes the program of every process to the new program, back to the old one,
// and to the new one again.
func TestUpgradeSchedule(t *testing.T) {
	upgrade := shape()
	upgrade.Upgrade = true
	var changes []Kind
	for _, f := range Plan(1, 20*time.Second, upgrade) {
		switch f.Kind {
		case Upgrade, Rollback:
			changes = append(changes, f.Kind)
		case Rolling:
			t.Errorf("%v overlaps with the upgrade", f)
		}
	}
	if want := []Kind{Upgrade, Rollback, Upgrade}; !slices.Equal(changes, want) {
		t.Errorf("%v, want %v", changes, want)
	}
}
