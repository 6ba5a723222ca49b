package bench

import (
	"context"
	"fmt"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/transport"
)

// leastWithTLS is the target for the rate with TLS, as a share of the rate in plain text.
const leastWithTLS = 0.9

var encrypted = Workload{
	Name:  "tls",
	Shows: "batches of 8 and of 100 with TLS, in turns with plain text",
	Run: func(ctx context.Context, r *Run) error {
		return r.World(ctx, fleet.Config{}, func(ctx context.Context, plain *World) error {
			return r.World(ctx, fleet.Config{TLS: transport.Require}, func(ctx context.Context, secured *World) error {
				return inTurns(ctx, plain, secured)
			})
		})
	},
}

// inTurns measures the rates of batches in two worlds at the same time, so that other load on
// the machine affects both.
func inTurns(ctx context.Context, plain, secured *World) error {
	for _, w := range []*World{plain, secured} {
		if err := w.freeFleet(ctx, w.Sized(400, 10), "slots=750"); err != nil {
			return err
		}
	}
	for _, c := range []struct{ size, callers, most int }{{8, batchCallers, 3000}, {100, 16, 250}} {
		one := func(w *World, suffix string) series {
			return series{world: w, name: fmt.Sprintf("batches of %d, %s", c.size, suffix), callers: c.callers,
				most: w.Sized(c.most, 16), do: w.starting(c.size, false)}
		}
		base, tls := one(plain, "plain text"), one(secured, "TLS")
		tls.against, tls.target = base.name, &Target{Of: Ratio, AtLeast: leastWithTLS}
		if err := plain.repeat(ctx, base, tls); err != nil {
			return err
		}
	}
	return nil
}
