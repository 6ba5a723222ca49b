package queue

import (
	"fmt"
	"testing"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
)

// BenchmarkStep measures the allocations of a step, which `make bench-guard` compares with
// a baseline. The allocations do not depend on the number of pending reservations, so a
// small queue is enough.
func BenchmarkStep(b *testing.B) {
	const n = 1000
	measure := func(name string, step func(w *world, i int)) {
		b.Run(name, func(b *testing.B) {
			w := waiting(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				step(w, i)
			}
		})
	}
	measure("Upsert", func(w *world, i int) { w.input(ask(fmt.Sprint("k", i), 8)) })
	measure("Unchanged", func(w *world, i int) { w.input(ask(fmt.Sprint("j", i%n), 1)) })
	measure("Cancel", func(w *world, i int) { w.input(request.Cancel{Key: ask(fmt.Sprint("j", i%n), 1).Key}) })
	measure("Cycle", func(w *world, _ int) {
		w.step(scheduler.CycleDone{Cycle: w.cycle.Number})
		w.now = w.now.Add(w.core.config.Scheduling.RetryEvery)
		if len(actionsOf[model.Cycle](w.step(nil))) == 0 {
			b.Fatal("no cycle")
		}
	})
}
