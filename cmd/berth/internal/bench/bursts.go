package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// burstsWithin bounds the workload; what is not done by then is noted.
const burstsWithin = 150 * time.Second

var bursts = Workload{
	Name:  "bursts",
	Shows: "50,000 batches of 1 to 20 in bursts, room for one in twenty",
	Run: func(ctx context.Context, w *World) error {
		r := w.run
		plan, workers := burstPlan(w, r.Sized(50_000, 20), min(1000, r.Sized(10_000, 4)))
		slots := max(20, workers/20)
		const each = 50
		if err := w.Simulate(ctx, "few", (slots+each-1)/each, "slots=50", "cpu=1000"); err != nil {
			return err
		}
		r.Note("%d batches with %d workers, on %d slots", len(plan), workers, slots)
		if err := w.repeat(ctx, w.puts(64)); err != nil {
			return err
		}
		b := newBacklog(len(plan))
		if err := w.tail(ctx, b.see); err != nil {
			return err
		}
		err := w.Measure(ctx, "bursts", func() (int, error) { return b.play(ctx, w, plan) })
		if err := errors.Join(err, w.stopTail()); err != nil {
			return err
		}
		if b.done < len(plan) {
			r.Note("%d of %d batches had ended after %v: the rest was left", b.done, len(plan), burstsWithin)
		}
		f := Figure{Name: "first request to last end", Unit: "s", Target: &Target{Of: Median, AtMost: 60}}
		if b.done == len(plan) {
			f.Samples = []float64{b.seconds}
		}
		r.Add(f)
		r.Add(Figure{Name: "batches ended", Unit: "/s", Samples: []float64{float64(b.done) / b.seconds}, Against: puts64})
		r.Add(Figure{Name: "wait for the lease", Unit: "ms", Samples: b.waits})
		return nil
	},
}

// burstPlan is what is asked for: groups and sizes at random, the same in each
// run.
func burstPlan(w *World, n, groups int) (plan []Batch, workers int) {
	random := rand.New(rand.NewPCG(3, 4))
	for i := range n {
		b := Batch{
			Job: w.Job(i % 200), Stage: w.run.stage(), Workers: 1 + random.IntN(20), SKU: w.SKU("few"),
			CPU: int64(1 + random.IntN(groups)), RunFor: time.Duration(1+random.IntN(50)) * time.Millisecond,
		}
		plan = append(plan, b)
		workers += b.Workers
	}
	return plan, workers
}

// backlog follows what becomes of the batches of a plan. Its fields belong to
// the tail until that has stopped or all has been closed.
type backlog struct {
	batches int
	queued  map[client.Key]time.Time
	waits   []float64
	done    int
	last    time.Time
	all     chan struct{}
	ended   atomic.Int64 // as done, for who looks meanwhile
	seconds float64
}

func newBacklog(batches int) *backlog {
	return &backlog{batches: batches, queued: make(map[client.Key]time.Time, batches), all: make(chan struct{})}
}

// see takes an event in.
func (b *backlog) see(e *berthv1.Event, at time.Time) {
	key := client.Key{Job: e.GetJob(), Stage: e.GetStage(), Name: e.GetReservation()}
	switch e.GetKind() {
	case berthv1.Event_RESERVATION_QUEUED:
		b.queued[key] = at
	case berthv1.Event_RESERVATION_LEASED:
		b.waits = append(b.waits, millis(at.Sub(b.queued[key])))
		delete(b.queued, key)
	case berthv1.Event_RESERVATION_COMPLETED:
		b.last = at
		b.done++
		if b.ended.Add(1) == int64(b.batches) {
			close(b.all)
		}
	}
}

// play asks for the plan, a fiftieth at once each half second, and waits until
// all of it has ended.
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
			w.run.Say("%d of %d bursts are asked for, %d batches have ended", i+1, bursts, b.ended.Load())
		}
		return err
	})
	switch {
	case err == nil:
		w.run.Note("all was acknowledged after %.1f s", time.Since(began).Seconds())
	case ctx.Err() != nil && whole.Err() == nil:
		w.run.Note("not all was asked for within %v", burstsWithin)
	default:
		return 0, err
	}
	select {
	case <-b.all:
		b.seconds = b.last.Sub(began).Seconds()
	case <-ctx.Done():
		b.seconds = time.Since(began).Seconds()
	}
	return int(b.ended.Load()), nil
}
