package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/registry/scheduler"
)

// With either strategy, each cycle sorts its candidates in one order across groups and has
// a prefix of each group. If several groups request the same executors, precedence decides:
// no granted candidate comes after a refused one that would have fitted in its place.
func TestPrecedenceHoldsAcrossGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"epoch", "class"}).Draw(t, "strategy")
		order, err := scheduler.OrderNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(Config{Scheduling: scheduler.Config{Order: order,
			CycleCandidates: rapid.IntRange(1, 8).Draw(t, "candidates")}})
		w.successor(10)
		for i := range rapid.IntRange(2, 16).Draw(t, "reservations") {
			u := ask(fmt.Sprint("j", i), rapid.Int32Range(1, 3).Draw(t, "workers"))
			// All of these groups match the same executors.
			u.Spec.Constraints = constraint.Constraints{Resources: resource.Vector{"cpu": rapid.Int64Range(1, 4).Draw(t, "cpu")}}
			u.Spec.Priority.Class = model.Class(rapid.IntRange(0, 3).Draw(t, "class"))
			u.Spec.Priority.Tier = rapid.Int32Range(0, 2).Draw(t, "tier")
			if at := rapid.Int64Range(-3, 3).Draw(t, "order"); at > 0 {
				u.Spec.Priority.Order = &at
			}
			w.input(u)
		}
		w.step(scheduler.CycleDone{Cycle: w.cycle.Number})
		w.now = w.now.Add(time.Second)
		cycles := actionsOf[model.Cycle](w.step(nil))
		if len(cycles) != 1 {
			t.Fatalf("%d cycles", len(cycles))
		}
		var entries []*model.Reservation
		heads := map[string]bool{}
		for _, e := range cycles[0].Candidates {
			entries = append(entries, w.core.versions[e.UID].r)
			heads[e.Group] = true
		}
		if !slices.IsSortedFunc(entries, w.core.scheduler.Compare) {
			t.Fatalf("out of order: %s", show([]model.Action{cycles[0]}))
		}
		if len(heads) != len(w.core.scheduler.Groups()) {
			t.Fatalf("the heads of %d groups of %d", len(heads), len(w.core.scheduler.Groups()))
		}
		// Simulate the executors: some are free, and a free executor fits a worker of any group.
		free := rapid.IntRange(0, 20).Draw(t, "free")
		done, stopped := scheduler.CycleDone{Cycle: cycles[0].Number}, map[string]bool{}
		for i, e := range cycles[0].Candidates {
			outcome := model.Outcome{UID: e.UID, Result: model.Behind}
			switch {
			case stopped[e.Group]:
			case e.Workers.Len() <= free:
				free -= e.Workers.Len()
				outcome.Result, outcome.Lease = model.Granted, w.revision+1
				for _, before := range entries[:i] {
					if w.core.scheduler.Compare(before, entries[i]) > 0 {
						t.Fatalf("%s was granted before %s", entries[i].UID, before.UID)
					}
				}
			default:
				outcome.Result, stopped[e.Group] = model.NoFit, true
			}
			done.Outcomes = append(done.Outcomes, outcome)
		}
		w.step(done)
		stats := w.core.Stats()
		if got := stats.Candidates[model.Granted] + stats.Candidates[model.NoFit] +
			stats.Candidates[model.Behind]; got != uint64(len(done.Outcomes)) {
			t.Fatalf("%d outcomes are counted, of %d", got, len(done.Outcomes))
		}
	})
}
