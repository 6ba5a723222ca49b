package queue

import (
	"fmt"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/registry/scheduler"
)

// BenchmarkElection elects a standby with 100,000 pending reservations, in one group or in
// many, and measures the time until its first cycle.
func BenchmarkElection(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				b.StopTimer()
				c := standby(scheduler.Config{}, 100_000, groups, now)
				b.StartTimer()
				actions := c.Step(now, model.Elected{Term: 200_000, Revision: 200_000})
				if cycle := actionsOf[model.Cycle](actions); len(cycle) != 1 || len(cycle[0].Candidates) < groups {
					b.Fatalf("%d actions", len(actions))
				}
			}
		})
	}
}

// standby returns a core that follows n pending reservations in the given number of groups.
func standby(config scheduler.Config, n, groups int, now time.Time) *Core {
	c := New(Config{Scheduling: config})
	revision := int64(10)
	tell := func(record model.Record) {
		revision++
		c.Step(now, model.Changed{Ref: record.Ref(), Record: record, Create: revision, Mod: revision})
	}
	tell(&model.Ready{Since: now, By: "auto"})
	workers := model.WorkerSet{{Last: 3, Number: 1}}
	for i := range n {
		u := ask(fmt.Sprint("j", i), 4)
		u.Spec.Constraints.Resources = resource.Vector{"slots": 1, "cpu": int64(1 + i%groups)}
		tell(&model.Reservation{
			Key: u.Key, UID: fmt.Sprint("1-", i), Spec: u.Spec, Workers: workers, Place: int64(i + 1), State: model.Queued,
			CreatedAt: now, UpdatedAt: now,
		})
		tell(&model.Stage{Job: u.Key.Job, Stage: u.Key.Stage, Numbers: workers})
	}
	c.Step(now, model.Progress{Revision: revision})
	return c
}
