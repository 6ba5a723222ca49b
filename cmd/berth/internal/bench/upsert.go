package bench

import (
	"context"
	"fmt"
)

var upsert = Workload{
	Name:     "upsert",
	Shows:    "upserts until acknowledged, without free capacity",
	Anywhere: true,
	Run: inWorld(func(ctx context.Context, w *World) error {
		ask := func(ctx context.Context, caller, _ int) error {
			return w.Ask(ctx, Batch{Job: w.Job(caller), Stage: w.stage(), Workers: 8, SKU: w.SKU("none")})
		}
		for _, n := range []int{64, 256} {
			ratio := 0.5
			if n > 64 {
				ratio = 1 // the registry commits many requests in one transaction
			}
			etcd := w.puts(n)
			berth := series{name: fmt.Sprintf("berth, %d callers", n), callers: n, do: ask, against: etcd.name,
				target: &Target{Of: Ratio, AtLeast: ratio}}
			if err := w.repeat(ctx, etcd, berth); err != nil {
				return err
			}
		}
		return nil
	}),
}
