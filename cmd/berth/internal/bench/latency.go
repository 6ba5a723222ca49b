package bench

import (
	"context"
	"sync"
	"time"
)

var latency = Workload{
	Name:     "latency",
	Shows:    "100 batches of 8 a second, until all workers are started",
	Anywhere: true,
	Run: func(ctx context.Context, w *World) error {
		r := w.run
		const interval = 10 * time.Millisecond
		n := r.Sized(1500, 20)
		if err := w.Simulate(ctx, "free", r.Sized(200, 4), "slots=80"); err != nil {
			return err
		}
		starts := newStarts()
		if err := w.tail(ctx, starts.see); err != nil {
			return err
		}
		// What no implementation on etcd can beat: the request, its lease, the
		// order and the executor's answer are each durable before the next.
		floor, whole := &samples{}, &samples{}
		err := w.Measure(ctx, "4 puts in a row", func() (int, error) {
			return n / 3, paced(ctx, n/3, interval, func(ctx context.Context, i int, due time.Time) error {
				for range 4 {
					if err := w.put(ctx, 0, i); err != nil {
						return err
					}
				}
				floor.add(millis(time.Since(due)))
				return nil
			})
		})
		if err != nil {
			return err
		}
		err = w.Measure(ctx, "batches of 8, 100/s", func() (int, error) {
			return n, paced(ctx, n, interval, func(ctx context.Context, i int, due time.Time) error {
				at, err := w.start(ctx, starts, Batch{Job: w.Job(i % 64), Stage: r.stage(), Workers: 8, SKU: w.SKU("free")})
				whole.add(millis(at.Sub(due)))
				return err
			})
		})
		if err != nil {
			return err
		}
		r.Add(Figure{Name: "4 puts in a row, 100/s", Unit: "ms", Samples: floor.list})
		r.Add(Figure{Name: "batches of 8, 100/s", Unit: "ms", Samples: whole.list, Against: "4 puts in a row, 100/s", Target: &Target{Of: Median, AtMost: 10, P99: new(50.0)}})
		return nil
	},
}

// samples are taken by many goroutines.
type samples struct {
	mu   sync.Mutex
	list []float64
}

func (s *samples) add(sample float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, sample)
}
