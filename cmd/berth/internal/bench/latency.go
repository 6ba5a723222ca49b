package bench

import (
	"context"
	"time"
)

var latency = Workload{
	Name:     "latency",
	Shows:    "100 batches of 8 per second, until all workers are started",
	Anywhere: true,
	Run: inWorld(func(ctx context.Context, w *World) error {
		const interval = 10 * time.Millisecond
		n := w.Sized(1500, 20)
		if err := w.freeFleet(ctx, w.Sized(200, 4), "slots=80"); err != nil {
			return err
		}
		// Four puts are the lower bound of any implementation on etcd: the reservation, the
		// lease, the start request and the executor's answer must be durable one after the
		// other.
		floor, err := w.paced(ctx, "4 puts in a row", n/3, interval, func(ctx context.Context, i int) (time.Time, error) {
			for range 4 {
				if err := w.put(ctx, 0, i); err != nil {
					return time.Time{}, err
				}
			}
			return time.Now(), nil
		})
		if err != nil {
			return err
		}
		const figure, baseline = "batches of 8, 100/s", "4 puts in a row, 100/s"
		started, err := w.paced(ctx, figure, n, interval, func(ctx context.Context, i int) (time.Time, error) {
			_, started, err := w.start(ctx, Batch{Job: w.Job(i % 64), Stage: w.stage(), Workers: 8, SKU: w.SKU("free")})
			return started, err
		})
		if err != nil {
			return err
		}
		w.Add(Figure{Name: baseline, Unit: "ms", Samples: floor})
		w.Add(Figure{Name: figure, Unit: "ms", Samples: started, Against: baseline,
			Target: &Target{Of: Median, AtMost: 10, P99: new(50.0)}})
		return nil
	}),
}
