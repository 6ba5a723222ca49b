package bench

import (
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

var freedToLeased = Workload{
	Name:     "freed-to-leased",
	Shows:    "end of the last worker until the queue head is leased",
	Anywhere: true,
	Run: inWorld(func(ctx context.Context, w *World) error {
		const size = 4
		running, queued, samples := w.Sized(50, 3), w.Sized(400, 8), w.Sized(300, 4)
		if err := w.Simulate(ctx, "full", running*size/2, "slots=2", "cpu=1000"); err != nil {
			return err
		}
		leased, emptied := make(chan sighting, 1024), make(chan sighting, 1024)
		evicted := map[client.Key]int{} // workers by batch
		if err := w.tail(ctx, func(e *berthv1.Event, at time.Time) {
			key := keyOf(e)
			switch e.GetKind() {
			case berthv1.Event_RESERVATION_LEASED:
				leased <- sighting{key, at}
			case berthv1.Event_WORKER_EVICTED:
				if evicted[key] += int(e.GetCount()); evicted[key] == size {
					emptied <- sighting{key, at}
				}
			}
		}); err != nil {
			return err
		}
		// Two puts are the lower bound of any implementation on etcd: the release must be
		// durable before the grant, and the grant must be durable before a watch delivers
		// it.
		const puts = "2 puts in a row, seen"
		floor, err := w.load(ctx, puts, 1, bounds{most: samples}, func(ctx context.Context, _, i int) error {
			if err := w.put(ctx, 0, i); err != nil {
				return err
			}
			return w.put(ctx, 0, i)
		})
		if err != nil {
			return err
		}
		// The running batches and the queued batches belong to the same 8 groups.
		var holders []client.Key // batches with a lease, oldest first
		for i := range running + queued {
			b := Batch{Job: w.Job(i % 8), Stage: w.stage(), Workers: size, SKU: w.SKU("full"), CPU: int64(1 + i%8)}
			if err := w.Ask(ctx, b); err != nil {
				return err
			}
			if i < running {
				if _, err := receive(ctx, leased); err != nil {
					return err
				}
				holders = append(holders, b.Key())
			}
		}
		var took []float64
		_, err = w.Measure(ctx, "cancel a batch, grant the head", func() (int, error) {
			for i := range min(samples, queued) {
				if _, err := w.Client.Cancel(ctx, holders[i]); err != nil {
					return 0, err
				}
				empty, err := receive(ctx, emptied)
				if err != nil {
					return 0, err
				}
				granted, err := receive(ctx, leased)
				if err != nil {
					return 0, err
				}
				if empty.key != holders[i] || granted.at.Before(empty.at) {
					return 0, fault.New(fault.Internal, fault.ReasonInternal, "%s was granted out of turn, while %s was cancelled",
						granted.key, holders[i])
				}
				holders = append(holders, granted.key)
				took = append(took, millis(granted.at.Sub(empty.at)))
			}
			return len(took), nil
		})
		if err != nil {
			return err
		}
		w.Add(Figure{Name: puts, Unit: "ms", Samples: floor.Took})
		w.Add(Figure{
			Name: "freed to leased", Unit: "ms", Samples: took, Against: puts,
			Target: &Target{Of: Median, AtMost: 100},
		})
		return nil
	}),
}

// sighting is a change of a batch and the time at which the watch delivered the change.
type sighting struct {
	key client.Key
	at  time.Time
}

func receive(ctx context.Context, from <-chan sighting) (sighting, error) {
	select {
	case s := <-from:
		return s, nil
	case <-ctx.Done():
		return sighting{}, context.Cause(ctx)
	}
}
