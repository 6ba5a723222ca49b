package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// burstsWithin bounds the duration of the workload.
const burstsWithin = 150 * time.Second

var bursts = Workload{
	Name:  "bursts",
	Shows: "50,000 batches of 1 to 20 in bursts, slots for one in twenty",
	Run: inWorld(func(ctx context.Context, w *World) error {
		plan, workers := burstPlan(w, w.Sized(50_000, 20), min(1000, w.Sized(10_000, 4)))
		slots := max(20, workers/20)
		const each = 50
		if err := w.Simulate(ctx, "few", (slots+each-1)/each, "slots=50", "cpu=1000"); err != nil {
			return err
		}
		w.Note("%d batches with %d workers, on %d slots", len(plan), workers, slots)
		if err := w.repeat(ctx, w.puts(64)); err != nil {
			return err
		}
		b := &backlog{queued: map[client.Key]time.Time{}, ended: make(chan time.Time, len(plan))}
		if err := w.tail(ctx, b.observe); err != nil {
			return err
		}
		cost, err := w.Measure(ctx, "bursts", func() (int, error) { return b.play(ctx, w, plan) })
		if err := errors.Join(err, w.stopTail()); err != nil {
			return err
		}
		f := Figure{Name: "first request to last end", Unit: "s", Target: &Target{Of: Median, AtMost: 60}}
		if cost.Operations == len(plan) {
			f.Samples = []float64{b.seconds}
		} else {
			w.Note("%d of %d batches ended within %v", cost.Operations, len(plan), burstsWithin)
		}
		w.Add(f)
		rate := float64(cost.Operations) / b.seconds
		w.Add(Figure{Name: "batches ended", Unit: "/s", Samples: []float64{rate}, Against: puts64})
		w.Add(Figure{Name: "wait for the lease", Unit: "ms", Samples: b.waits})
		return nil
	}),
}

// burstPlan returns batches with random groups and sizes. Every run gets the same batches.
func burstPlan(w *World, n, groups int) (plan []Batch, workers int) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		b := Batch{
			Job: w.Job(i % 200), Stage: w.stage(), Workers: 1 + random.IntN(20), SKU: w.SKU("few"),
			CPU: int64(1 + random.IntN(groups)), RunFor: time.Duration(1+random.IntN(50)) * time.Millisecond,
		}
		plan = append(plan, b)
		workers += b.Workers
	}
	return plan, workers
}

// backlog follows the batches of a plan. Only observe uses the fields queued and waits
// until the tail has stopped.
type backlog struct {
	queued  map[client.Key]time.Time
	waits   []float64
	ended   chan time.Time // when each batch ended
	seconds float64        // from the first request until the last batch ended
}

func (b *backlog) observe(e *berthv1.Event, at time.Time) {
	key := keyOf(e)
	switch e.GetKind() {
	case berthv1.Event_RESERVATION_QUEUED:
		b.queued[key] = at
	case berthv1.Event_RESERVATION_LEASED:
		b.waits = append(b.waits, millis(at.Sub(b.queued[key])))
		delete(b.queued, key)
	case berthv1.Event_RESERVATION_COMPLETED:
		b.ended <- at
	}
}

// play requests a fiftieth of the plan every half second and waits until all batches have
// ended. It returns the number of batches that ended within the time limit.
func (b *backlog) play(whole context.Context, w *World, plan []Batch) (int, error) {
	const parts, callersOfBurst, every = 50, 64, 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(whole, burstsWithin)
	defer cancel()
	began := time.Now()
	size := (len(plan) + parts - 1) / parts
	bursts := (len(plan) + size - 1) / size
	err := paced(ctx, bursts, every, func(ctx context.Context, i int, _ time.Time) error {
		part := plan[i*size : min((i+1)*size, len(plan))]
		_, err := callers(ctx, callersOfBurst, bounds{most: len(part)}, func(ctx context.Context, _, k int) error {
			return w.Ask(ctx, part[k])
		})
		if i%10 == 9 {
			w.Say("%d of %d bursts requested, %d batches have ended", i+1, bursts, len(b.ended))
		}
		return err
	})
	if err != nil && (ctx.Err() == nil || whole.Err() != nil) {
		return 0, err
	}
	w.Note("the requests took %.1f s, at most %v", time.Since(began).Seconds(), burstsWithin)
	for n := range plan {
		select {
		case at := <-b.ended:
			b.seconds = at.Sub(began).Seconds()
		case <-ctx.Done():
			b.seconds = time.Since(began).Seconds()
			return n + len(b.ended), nil
		}
	}
	return len(plan), nil
}
