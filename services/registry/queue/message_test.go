package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// cycles simulates executor-state for a while and returns the cycles that it received. The
// simulated executors have capacity for exactly the reservations that grants selects.
func cycles(c *Core, actions []model.Action, now time.Time, long time.Duration,
	grants func(uid string) bool) (all []model.Cycle) {
	known := map[string]bool{} // UIDs of the previous cycle, sent whole or by name
	for end := now.Add(long); ; {
		sent := actionsOf[model.Cycle](actions)
		all = append(all, sent...)
		var event model.Event
		if len(sent) > 0 {
			cycle := sent[len(sent)-1]
			done := scheduler.CycleDone{Cycle: cycle.Number}
			for i, e := range cycle.Candidates {
				switch {
				case grants(e.UID):
					done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.Granted, Lease: 400_000 + int64(i)})
				case !e.Unchanged:
					done.Outcomes = append(done.Outcomes, model.Outcome{UID: e.UID, Result: model.NoFit,
						Reason: fault.ReasonInsufficientCapacity})
				case !known[e.UID]:
					panic("executor-state does not know " + e.UID)
				}
			}
			clear(known)
			for _, e := range cycle.Candidates {
				known[e.UID] = true
			}
			event = done
		} else if now = now.Add(time.Millisecond); now.After(end) {
			return all
		}
		actions = commitAll(c, now, c.Step(now, event))
	}
}

// A cycle fits in one message. If it cannot hold the heads of all groups, the following
// cycles start at once and continue where it ended, until the last head was sent.
func TestCycleFitsInOneMessage(t *testing.T) {
	const groups, limit = 2000, 200_000
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := standby(scheduler.Config{CycleBytes: limit}, groups, groups, now)
	var last string
	order := map[string]int{}
	for _, g := range c.scheduler.Groups() {
		r, _ := g.Head()
		order[r.UID] = int(r.Place)
		if r.Place == groups {
			last = r.UID
		}
	}
	elected := c.Step(now, model.Elected{Term: 200_000, Revision: 200_000})
	all := cycles(c, elected, now, 100*time.Millisecond, func(uid string) bool { return uid == last })
	for _, cycle := range all {
		bytes := 0
		for i, e := range cycle.Candidates {
			bytes += request.CandidateSize(e)
			if order[e.UID] != i+1 {
				t.Fatalf("cycle %d has %s at %d", cycle.Number, e.UID, i)
			}
		}
		if bytes > limit {
			t.Errorf("cycle %d has %d bytes", cycle.Number, bytes)
		}
	}
	if n := len(all); n < 3 || n > 6 {
		t.Fatalf("%d cycles", n)
	}
	if first := all[0]; len(first.Candidates) == groups {
		t.Error("the first holds all heads")
	}
	if len(c.granted) != 1 {
		t.Errorf("after %d cycles the last of %d candidates is not granted", len(all), len(all[len(all)-1].Candidates))
	}

	t.Run("or waits", func(t *testing.T) {
		// If a cycle cannot hold even the names of all heads, it omits the last ones. The heads
		// that it sends are not sent more often than without the omitted ones.
		c := standby(scheduler.Config{CycleBytes: limit / 10}, groups, groups, now)
		elected := c.Step(now, model.Elected{Term: 200_000, Revision: 200_000})
		all := cycles(c, elected, now, 5*time.Second, func(string) bool { return false })
		longest := slices.MaxFunc(all, func(a, b model.Cycle) int { return len(a.Candidates) - len(b.Candidates) })
		if n := len(longest.Candidates); len(all) > 60 || n < limit/10/100 || n >= groups {
			t.Errorf("%d cycles in 5 s, the longest of %d candidates", len(all), n)
		}
	})
}

// A candidate that is larger than the limit of a cycle is sent in a cycle of its own.
func TestCandidateLargerThanACycle(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := standby(scheduler.Config{CycleBytes: 1}, 3, 3, now)
	elected := c.Step(now, model.Elected{Term: 200_000, Revision: 200_000})
	all := cycles(c, elected, now, 100*time.Millisecond, func(string) bool { return true })
	if len(all) != 3 || len(c.granted) != 3 {
		t.Errorf("%d cycles, %d granted", len(all), len(c.granted))
	}
}

// While a candidate avoids executors, each cycle sends it whole, because the list changes
// with time. Afterwards one more cycle sends the candidate whole, and later cycles send
// only its name.
func TestCandidateIsSentWholeWhileItAvoidsExecutors(t *testing.T) {
	const avoids = 3 * time.Second
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := standby(scheduler.Config{}, 1, 1, now)
	for _, g := range c.scheduler.Groups() {
		head, _ := g.Head()
		failed := *head
		failed.Failed = []model.FailedOn{{Executor: "h", At: now.Add(avoids - model.AvoidFor)}}
		c.Step(now, model.Changed{Ref: failed.Ref(), Record: &failed, Create: failed.Epoch, Mod: 1000})
	}
	elected := c.Step(now, model.Elected{Term: 200_000, Revision: 200_000})
	var sent []string
	for _, cycle := range cycles(c, elected, now, 2*avoids, func(string) bool { return false }) {
		one := "named"
		if e := cycle.Candidates[0]; !e.Unchanged {
			one = fmt.Sprint(e.Constraints.AvoidFailed)
		}
		if len(sent) == 0 || sent[len(sent)-1] != one {
			sent = append(sent, one)
		}
	}
	if want := []string{"[h]", "[]", "named"}; !slices.Equal(sent, want) {
		t.Errorf("sent as %q, want %q", sent, want)
	}
}
