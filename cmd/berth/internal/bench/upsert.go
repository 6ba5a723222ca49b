package bench

import (
	"context"
	"fmt"
)

var upsert = Workload{
	Name:     "upsert",
	Shows:    "reservations acknowledged while none has capacity",
	Anywhere: true,
	Run: func(ctx context.Context, r *Run) error {
		return r.World(ctx, func(ctx context.Context, w *World) error {
			raw, err := w.rawPuts(ctx)
			if err != nil {
				return err
			}
			ask := func(ctx context.Context, caller, _ int) error {
				return w.Ask(ctx, Batch{Job: w.Job(caller), Stage: r.stage(), Workers: 8, SKU: w.SKU("none")})
			}
			for _, n := range []int{64, 256} {
				ratio := 0.5
				if n > 64 {
					ratio = 1 // many go into one transaction
				}
				etcd := series{name: fmt.Sprintf("etcd, %d callers", n), callers: n, do: raw.put}
				berth := series{name: fmt.Sprintf("berth, %d callers", n), callers: n, do: ask, against: etcd.name, target: &Target{Of: Ratio, AtLeast: ratio}}
				if err := r.repeat(ctx, w, etcd, berth); err != nil {
					return err
				}
			}
			return nil
		})
	},
}
