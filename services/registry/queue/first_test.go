package queue

import (
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// The leader does not know the free capacity when its term begins. Its first cycle
// therefore has the heads of all groups and only a few candidates behind them. If
// executor-state grants those candidates, the next cycle follows at once.
func TestFirstCycleOfATermIsShort(t *testing.T) {
	const waiting, groups, behind = 2000, 40, 32
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := standby(scheduler.Config{}, waiting, groups, now)
	first := actionsOf[model.Cycle](c.Step(now, model.Elected{Term: 200_000, Revision: 200_000}))
	if len(first) != 1 || len(first[0].Candidates) != groups+behind {
		t.Fatalf("%d cycles, the first of %d candidates; want one of %d", len(first), len(first[0].Candidates), groups+behind)
	}
	heads := map[string]bool{}
	for _, e := range first[0].Candidates {
		heads[e.Group] = true
	}
	if len(heads) != groups {
		t.Errorf("%d of %d heads are candidates", len(heads), groups)
	}
	done := scheduler.CycleDone{Cycle: first[0].Number}
	for i, e := range first[0].Candidates {
		outcome := model.Outcome{UID: e.UID, Result: model.Granted, Lease: 200_001 + int64(i), Fitting: 4}
		done.Outcomes = append(done.Outcomes, outcome)
	}
	var next []model.Cycle
	for after := now; len(next) == 0 && after.Sub(now) < time.Second; after = after.Add(10 * time.Millisecond) {
		if after.Equal(now) {
			next = actionsOf[model.Cycle](commitAll(c, after, c.Step(after, done)))
			continue
		}
		next = actionsOf[model.Cycle](commitAll(c, after, c.Step(after, nil)))
	}
	if len(next) != 1 || len(next[0].Candidates) < 400 {
		t.Errorf("%d cycles follow, the next of %d candidates", len(next), len(next[0].Candidates))
	}
}

// commitAll commits the effects of a step and all effects that follow from them. It returns
// all actions.
func commitAll(c *Core, now time.Time, actions []model.Action) (all []model.Action) {
	for revision := int64(300_000); len(actions) > 0; revision++ {
		all = append(all, actions...)
		effects := 0
		for _, a := range actions {
			if _, is := a.(model.Effect); is {
				effects++
			}
		}
		if effects == 0 {
			break
		}
		actions = c.Step(now, model.Committed{Effects: effects, Revision: revision})
	}
	return all
}
