package scheduler

import (
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func TestOrderNamed(t *testing.T) {
	for name, want := range map[string]Order{"epoch": OrderByEpoch{}, "class": OrderByClass{}} {
		if order, err := OrderNamed(name); err != nil || order != want {
			t.Errorf("%s: %T, %v", name, order, err)
		}
	}
	for _, name := range []string{"", "Epoch", "lifo"} {
		_, err := OrderNamed(name)
		if f := fault.Of(err); f.Kind != fault.Invalid || f.Fields[0].Name != "order" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A new leader of executor-state has seen no cycle. If a caller sent such a high cycle
// number that it is out of reach, the next cycle follows the highest number that was within
// reach. Afterwards no cycle with a higher number can follow.
func TestCycleDoneGivesUpANumberOutOfReach(t *testing.T) {
	for _, c := range []struct{ reachable, newest, want int64 }{
		{7, 0, 8}, {1 << 40, 0, 1<<40 + 1}, {1 << 62, 0, 1<<62 + 1}, {7, 20, 21},
	} {
		s := New(Config{})
		s.cycles, s.reachable = 1<<62+1<<30, c.reachable
		s.flight = &flight{cycle: model.Cycle{Number: s.cycles}}
		s.CycleDone(time.Unix(2, 0), CycleDone{Cycle: s.cycles, Newest: c.newest, TooHigh: true}, nil)
		if s.flight != nil || s.cycles+1 != c.want {
			t.Errorf("after %d, and %d at the new leader, cycle %d follows, want %d", c.reachable, c.newest, s.cycles+1, c.want)
		}
	}
}

// The scheduler ignores the outcome of any cycle other than the cycle in flight.
func TestCycleDoneIgnoresAnotherCycle(t *testing.T) {
	s, now := New(Config{}), time.Unix(1, 0)
	s.Lead(10)
	var e Entry
	s.Add(&e, &model.Reservation{UID: "a", Workers: model.WorkerSet{{Number: 1}}})
	cycle, started := s.StartCycle(now, 1)
	if !started || len(cycle.Candidates) != 1 || !e.InCycle {
		t.Fatalf("started %v with %+v", started, cycle)
	}
	granted := []model.Outcome{{UID: "a", Result: model.Granted, Lease: 2}}
	decisions := 0
	for _, number := range []int64{cycle.Number + 1, cycle.Number, cycle.Number} {
		s.CycleDone(now, CycleDone{Cycle: number, Outcomes: granted}, func(string, *model.Outcome) { decisions++ })
	}
	if decisions != 1 || e.InCycle {
		t.Errorf("%d decisions, in a cycle: %v", decisions, e.InCycle)
	}
}
