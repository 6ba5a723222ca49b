package bench

import (
	"context"
	"fmt"
	"time"
)

var waiting = Workload{
	Name:  "waiting",
	Shows: "what 100,000 waiting in other groups cost one group",
	Run: func(ctx context.Context, r *Run) error {
		for _, groups := range []int{1, 1000} {
			err := r.World(ctx, func(ctx context.Context, w *World) error { return besideMany(ctx, w, groups) })
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// besideMany measures one group while more and more wait in others.
func besideMany(ctx context.Context, w *World, groups int) error {
	r := w.run
	if err := w.Simulate(ctx, "full", r.Sized(500, 4), "slots=4", "cpu=1000"); err != nil {
		return err
	}
	if err := w.Simulate(ctx, "free", r.Sized(500, 4), "slots=10"); err != nil {
		return err
	}
	starts := newStarts()
	stop, err := w.tail(ctx, starts.see)
	if err != nil {
		return err
	}
	alone, queued := [2]string{}, 0
	for _, size := range []int{0, 10_000, 100_000} {
		if size = r.Sized(size, 0); size > queued {
			if _, err := w.queue(ctx, size-queued, groups, "full"); err != nil {
				return err
			}
			queued = size
		}
		names := [2]string{fmt.Sprintf("upsert, %d in %s", queued, plural(groups, "group")), fmt.Sprintf("grant, %d in %s", queued, plural(groups, "group"))}
		n := r.Sized(500, 5)
		var took [2][]float64
		for i, name := range names {
			sku := [2]string{"none", "free"}[i]
			err := w.Measure(ctx, name, func() (int, error) {
				for range n {
					b := Batch{Job: w.Job(100 + i), Stage: r.stage(), Workers: 1, SKU: w.SKU(sku)}
					one := starts.expect(b.Key(), b.Workers)
					begun := time.Now()
					if err := w.Ask(ctx, b); err != nil {
						return 0, err
					}
					if i == 0 {
						took[i] = append(took[i], millis(time.Since(begun)))
						continue
					}
					if _, err := one.wait(ctx); err != nil {
						return 0, err
					}
					took[i] = append(took[i], millis(one.leased.Sub(begun)))
				}
				return n, nil
			})
			if err != nil {
				return err
			}
			f := Figure{Name: name, Unit: "ms", Samples: took[i], Against: alone[i]}
			if queued > 0 {
				f.Target = &Target{Of: Ratio, AtMost: 1.5}
			} else {
				alone[i] = name
			}
			r.Add(f)
		}
	}
	return stop()
}
