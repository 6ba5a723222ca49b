package bench

import (
	"context"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

// idleSeconds is how long a fleet without work is looked at.
const idleSeconds = 3

var batches = Workload{
	Name:  "batches",
	Shows: "strict batches, asked for until all workers are started",
	Run: func(ctx context.Context, r *Run) error {
		return r.World(ctx, func(ctx context.Context, w *World) error {
			raw, err := w.rawPuts(ctx)
			if err != nil {
				return err
			}
			if err := w.Simulate(ctx, "free", r.Sized(2000, 10), "slots=150"); err != nil {
				return err
			}
			// What heartbeats and renewals cost by themselves: no part of a batch.
			if err := w.Measure(ctx, "idle, a second", func() (int, error) { return idleSeconds, store.Sleep(ctx, idleSeconds*time.Second) }); err != nil {
				return err
			}
			starts := newStarts()
			stop, err := w.tail(ctx, starts.see)
			if err != nil {
				return err
			}
			const callers = 64
			start := func(size int, spread bool) operation {
				return func(ctx context.Context, caller, _ int) error {
					b := Batch{Job: w.Job(caller), Stage: r.stage(), Workers: size, SKU: w.SKU("free"), Spread: spread}
					_, err := w.start(ctx, starts, b)
					return err
				}
			}
			etcd := series{name: fmt.Sprintf("etcd, %d callers", callers), callers: callers, do: raw.put}
			eights := series{name: "batches of 8", callers: callers, most: r.Sized(1500, 16), do: start(8, false), against: etcd.name}
			spread := eights
			spread.name, spread.do = "batches of 8, spread", start(8, true)
			if err := r.repeat(ctx, w, etcd, eights, spread); err != nil {
				return err
			}
			// No more than these many workers in one repeat, so that capacity stays
			// free to the end.
			workers := r.Sized(8000, 64)
			for _, size := range []int{1, 10, 100, 1000} {
				most := workers / size
				if most == 0 {
					break
				}
				s := series{
					name: fmt.Sprintf("workers, %d a batch", size), callers: min(callers, most), most: most, units: size,
					do: start(size, false), against: etcd.name,
				}
				if err := r.repeat(ctx, w, s); err != nil {
					return err
				}
			}
			return stop()
		})
	},
}

// start asks for a batch and waits until every worker of it is started.
func (w *World) start(ctx context.Context, s *starts, b Batch) (time.Time, error) {
	one := s.expect(b.Key(), b.Workers)
	if err := w.Ask(ctx, b); err != nil {
		return time.Time{}, err
	}
	return one.wait(ctx)
}
