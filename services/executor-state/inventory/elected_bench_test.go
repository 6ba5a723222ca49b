package inventory

import (
	"fmt"
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// BenchmarkElection measures the work of a new leader between its election and its first
// answer. It has 10,000 executors with a worker each, and 100,000 pending reservations in
// one group or in many.
func BenchmarkElection(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c := standby(10_000, 100_000, groups)
				b.StartTimer()
				for _, action := range c.Step(start, model.Elected{Term: 1 << 40, Revision: 1 << 40}) {
					b.Fatalf("%T", action)
				}
			}
		})
	}
}

// standby returns a core that follows executors with one worker each, and pending
// reservations.
func standby(executors, waiting, groups int) *Core {
	c := New(DefaultConfig())
	revision := int64(10)
	apply := func(record model.Record) {
		revision++
		c.Step(start, model.Changed{Ref: record.Ref(), Record: record, Create: revision, Mod: revision})
	}
	apply(&model.Ready{Since: start, By: "auto"})
	placements := model.WorkerSet{{Last: 0, Number: 1}}
	for i := range executors {
		id := fmt.Sprintf("host-%06d", i)
		apply(&model.Executor{
			ID: id, Address: id + ":7200", SKU: "small", Ordinal: uint32(i + 1), Incarnation: 1,
			Resources: resource.Vector{"slots": 4, "cpu": 1000}, RegisteredAt: start, Since: start,
		})
		apply(&model.Live{ID: id, Incarnation: 1})
		uid := fmt.Sprint("a-", i)
		apply(&model.Reservation{
			Key: model.Key{Job: "a", Stage: id, Name: model.MainName}, UID: uid, Workers: placements, State: model.Active,
			CreatedAt: start, UpdatedAt: start,
		})
		apply(&model.LeaseChunk{
			UID: uid, Chunks: 1, Total: 1, Each: resource.Vector{"slots": 1},
			Workers: []model.Placement{{Worker: model.WorkerID{Number: 1}, Ordinal: uint32(i + 1)}},
		})
		apply(&model.TaskHeader{UID: uid, Chunks: 1, Workers: 1, Complete: true})
	}
	for i := range waiting {
		apply(&model.Reservation{
			Key: model.Key{Job: fmt.Sprint("j", i), Stage: "s", Name: model.MainName}, UID: fmt.Sprint("1-", i), Workers: placements,
			Spec: model.Spec{Constraints: constraint.Constraints{SKU: "large",
				Resources: resource.Vector{"slots": 1, "cpu": int64(2000 + i%groups)}}},
			State: model.Queued, Place: int64(i + 1), CreatedAt: start, UpdatedAt: start,
		})
	}
	c.Step(start, model.Progress{Revision: revision})
	return c
}
