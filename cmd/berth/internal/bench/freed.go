package bench

import (
	"cmp"
	"context"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

var freedToLeased = Workload{
	Name:     "freed-to-leased",
	Shows:    "last worker gone until the waiting head has its lease",
	Anywhere: true,
	Run: func(ctx context.Context, w *World) error {
		r := w.run
		const size = 4
		running, waiting, samples := r.Sized(50, 3), r.Sized(400, 8), r.Sized(300, 4)
		if err := w.Simulate(ctx, "full", running*size/2, "slots=2", "cpu=1000"); err != nil {
			return err
		}
		f := &freed{w: w, size: size, gone: map[client.Key]int{}, seen: make(chan sighting, 1024)}
		if err := w.tail(ctx, f.see); err != nil {
			return err
		}
		// No implementation on etcd is faster: the release is durable before the
		// grant, which is durable before it is seen.
		const puts = "2 puts in a row, seen"
		floor, err := w.timed(ctx, puts, samples, func(i int) error {
			return cmp.Or(w.put(ctx, 0, i), w.put(ctx, 0, i))
		})
		if err != nil {
			return err
		}
		// Every fleet-full of batches is of 8 groups, and so are those behind.
		for i := range running + waiting {
			b := Batch{Job: w.Job(i % 8), Stage: r.stage(), Workers: size, SKU: w.SKU("full"), CPU: int64(1 + i%8)}
			if err := w.Ask(ctx, b); err != nil {
				return err
			}
			if i < running {
				if err := f.await(ctx, leased); err != nil {
					return err
				}
			}
		}
		took := make([]float64, 0, samples)
		err = w.Measure(ctx, "cancel a batch, grant the head", func() (int, error) {
			for range min(samples, waiting) {
				ms, err := f.once(ctx)
				if err != nil {
					return 0, err
				}
				took = append(took, ms)
			}
			return len(took), nil
		})
		if err != nil {
			return err
		}
		r.Add(Figure{Name: puts, Unit: "ms", Samples: floor})
		r.Add(Figure{
			Name: "freed to leased", Unit: "ms", Samples: took, Against: puts,
			Target: &Target{Of: Median, AtMost: 100},
		})
		return nil
	},
}

// freed follows which batches hold the fleet.
type freed struct {
	w    *World
	size int
	// holders are the batches with a lease, oldest first; moved by await alone.
	holders []client.Key
	// gone counts the workers that are gone, by batch; it belongs to the tail.
	gone map[client.Key]int
	seen chan sighting
}

// sighting is a change that freed waits for, seen.
type sighting struct {
	what sight
	key  client.Key
	at   time.Time
}

type sight uint8

const (
	leased sight = iota // a batch got its lease
	empty               // the last worker of a batch is gone
)

// see takes an event in.
func (f *freed) see(e *berthv1.Event, at time.Time) {
	key := client.Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()}
	switch e.GetKind() {
	case berthv1.Event_RESERVATION_LEASED:
		f.seen <- sighting{leased, key, at}
	case berthv1.Event_WORKER_EVICTED:
		if f.gone[key] += int(e.GetCount()); f.gone[key] == f.size {
			f.seen <- sighting{empty, key, at}
		}
	}
}

// await waits until something is seen, and nothing else before.
func (f *freed) await(ctx context.Context, what sight) error {
	_, err := f.next(ctx, what)
	return err
}

func (f *freed) next(ctx context.Context, what sight) (time.Time, error) {
	select {
	case s := <-f.seen:
		if s.what != what {
			return s.at, fault.New(fault.Internal, fault.ReasonInternal, "%s came out of turn", s.key)
		}
		if what == leased {
			f.holders = append(f.holders, s.key)
		}
		return s.at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// once cancels the oldest batch and answers how long its executors were free.
func (f *freed) once(ctx context.Context) (float64, error) {
	oldest := f.holders[0]
	f.holders = f.holders[1:]
	if _, err := f.w.Client.Cancel(ctx, oldest); err != nil {
		return 0, err
	}
	free, err := f.next(ctx, empty)
	if err != nil {
		return 0, err
	}
	granted, err := f.next(ctx, leased)
	return millis(granted.Sub(free)), err
}
