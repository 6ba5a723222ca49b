package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/scheduler"
)

// Executor-state refuses a cycle if it has seen a higher number. The registry then sends
// the candidates again at once, whole, with a number above the higher one. If too few
// numbers remain above the reported number, it cannot be genuine, and the registry ignores
// it.
func TestCycleContinuesAboveARefusedNumber(t *testing.T) {
	for _, c := range []struct{ newest, want int64 }{
		{1 << 40, 1<<40 + 1}, {1 << 62, 1<<62 + 1}, {1<<62 + 1<<20, 1<<62 + 1<<20 + 1},
		{math.MaxInt64, 0}, {math.MaxInt64 - 1, 0}, {-1, 0}, {0, 0},
	} {
		t.Run(fmt.Sprint(c.newest), func(t *testing.T) {
			core := New(Config{})
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var out []model.Action
			revision := int64(100)
			var step func(event model.Event)
			step = func(event model.Event) {
				effects := 0
				for _, action := range core.Step(now, event) {
					if _, ok := action.(model.Effect); ok {
						effects++
					}
					out = append(out, action)
				}
				if effects > 0 {
					revision++
					step(model.Committed{Effects: effects, Revision: revision})
				}
			}
			step(model.Elected{Term: 10, Revision: revision})
			u := model.Upsert{Key: model.Key{Job: "j", Stage: "s", Name: "main"}, Count: 1}
			step(model.Input{Token: 1, Request: u})
			for len(actionsOf[model.Cycle](out)) == 0 {
				now = now.Add(10 * time.Millisecond)
				step(nil)
			}
			first := actionsOf[model.Cycle](out)[0]
			out = nil
			step(scheduler.CycleDone{Cycle: first.Number, Newest: c.newest,
				Outcomes: []model.Outcome{{UID: first.Candidates[0].UID, Result: model.Behind}}})
			for range 3 {
				now = now.Add(core.config.Scheduling.MinDelay)
				step(nil)
			}
			cycles := actionsOf[model.Cycle](out)
			if c.want == 0 {
				if len(cycles) > 0 && cycles[0].Number > first.Number+3 {
					t.Errorf("cycle %d follows", cycles[0].Number)
				}
				return
			}
			if len(cycles) == 0 || cycles[0].Number != c.want || len(cycles[0].Candidates) != 1 ||
				cycles[0].Candidates[0].Unchanged {
				t.Errorf("%+v follow, want cycle %d with the candidate", cycles, c.want)
			}
		})
	}
}
