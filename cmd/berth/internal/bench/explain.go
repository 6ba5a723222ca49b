package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/client"
)

var explain = Workload{
	Name:  "explain",
	Shows: "why any of 100,000 waits, among 10,000 executors",
	Run: func(ctx context.Context, r *Run) error {
		for _, groups := range []int{1, 1000} {
			err := r.World(ctx, func(ctx context.Context, w *World) error { return explainAmong(ctx, w, groups) })
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// explainAmong measures with reservations waiting in so many groups.
func explainAmong(ctx context.Context, w *World, groups int) error {
	r := w.run
	if err := w.Simulate(ctx, "full", r.Sized(10_000, 10), "slots=4", "cpu=1000"); err != nil {
		return err
	}
	q, err := w.queue(ctx, r.Sized(100_000, 20), groups, "full")
	if err != nil {
		return err
	}
	name := func(what string) string { return fmt.Sprintf("%s, %s", what, plural(groups, "group")) }
	random := rand.New(rand.NewPCG(1, 2)) // each run asks for the same ones
	ask := func(what string, n int, target *Target, against string, call func(client.Key) error) error {
		var took []float64
		err := w.Measure(ctx, name(what), func() (int, error) {
			for range n {
				key := q[random.IntN(len(q))]
				begun := time.Now()
				if err := call(key); err != nil {
					return 0, err
				}
				took = append(took, millis(time.Since(begun)))
			}
			return n, nil
		})
		if err == nil {
			r.Add(Figure{Name: name(what), Unit: "ms", Samples: took, Target: target, Against: against})
		}
		return err
	}
	n := r.Sized(1000, 10)
	err = ask("get", n, nil, "", func(key client.Key) error {
		_, err := w.Client.Get(ctx, key)
		return err
	})
	if err != nil {
		return err
	}
	explanations := berthv1.NewExplanationsClient(w.Conn)
	err = ask("explain", n, &Target{Of: P99, AtMost: 100}, name("get"), func(key client.Key) error {
		_, err := explanations.ExplainReservation(ctx, &berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name})
		return err
	})
	if status.Code(errors.Unwrap(err)) == codes.Unimplemented {
		r.Note("this Berth does not answer ExplainReservation")
		err = nil
	}
	if err != nil {
		return err
	}
	return ask("pending view", n/10, nil, name("get"), func(client.Key) error {
		_, err := w.Client.Pending(ctx)
		return err
	})
}

// queue asks for n reservations that no executor of an SKU is large enough for,
// in so many groups, and answers their keys.
func (w *World) queue(ctx context.Context, n, groups int, sku string) ([]client.Key, error) {
	keys := make([]client.Key, n)
	began := time.Now()
	err := w.Measure(ctx, fmt.Sprintf("queue %d in %s", n, plural(groups, "group")), func() (int, error) {
		_, err := callers(ctx, 256, bounds{most: n}, func(ctx context.Context, _, i int) error {
			b := Batch{Job: w.Job(i % 100), Stage: w.run.stage(), Workers: 4, SKU: w.SKU(sku), CPU: int64(2000 + i%groups)}
			keys[i] = b.Key()
			return w.Ask(ctx, b)
		})
		return n, err
	})
	w.run.Say("%d reservations queued at %.0f a second", n, float64(n)/time.Since(began).Seconds())
	return keys, err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
