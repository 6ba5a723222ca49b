package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dustin/go-humanize/english"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

var waiting = Workload{
	Name:  "waiting",
	Shows: "what 100,000 waiting cost the others, and why each waits",
	Worlds: func(ctx context.Context, r *Run) error {
		for _, groups := range []int{1, 1000} {
			seed := setup{seed: seedExecutors("full", r.Sized(10_000, 10))}
			err := r.World(ctx, seed, func(ctx context.Context, w *World) error {
				b := &beside{w: w, groups: groups, starts: newStarts(), alone: map[string]string{}}
				return b.measure(ctx)
			})
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// One thing is measured for no longer than eachWithin, once there are as many
// samples as fewest: what takes longest is not done most often.
const (
	eachWithin = 5 * time.Second
	fewest     = 20
)

// beside is two groups of their own beside many others: one that starts, and one
// that waits.
type beside struct {
	w      *World
	groups int // the others
	starts *starts
	// waits are the reservations of the group that waits, others those of all
	// other groups.
	waits, others []client.Key
	// alone names the figures of when nothing else waited.
	alone map[string]string
}

// measure measures the same while more and more wait in the other groups.
func (b *beside) measure(ctx context.Context) error {
	r := b.w.run
	if err := b.w.Simulate(ctx, "free", r.Sized(500, 4), "slots=10"); err != nil {
		return err
	}
	if err := b.w.tail(ctx, b.starts.see); err != nil {
		return err
	}
	sizes := []int{0, 10_000, 100_000}
	if b.groups > 1 {
		// One in each: what follows from the groups, and not from what waits.
		sizes = []int{0, b.groups, 10_000, 100_000}
	}
	for _, size := range sizes {
		if more := r.Sized(size, 0) - len(b.others); more > 0 {
			keys, err := b.w.queue(ctx, more, b.groups, "full")
			if err != nil {
				return err
			}
			b.others = append(b.others, keys...)
		}
		if err := b.ofItsOwn(ctx); err != nil {
			return err
		}
	}
	return b.explainAny(ctx)
}

// ofItsOwn measures what has nothing to do with those that wait, and the view of
// all that waits.
func (b *beside) ofItsOwn(ctx context.Context) error {
	w, n := b.w, b.w.run.Sized(200, 5)
	if err := b.each(ctx, "upsert", n, func(int) (time.Time, error) {
		batch := Batch{Job: w.Job(100), Stage: w.run.stage(), Workers: 1, SKU: w.SKU("none")}
		b.waits = append(b.waits, batch.Key())
		err := w.Ask(ctx, batch)
		return time.Now(), err
	}); err != nil {
		return err
	}
	if err := b.each(ctx, "grant", n, func(int) (time.Time, error) {
		batch := Batch{Job: w.Job(101), Stage: w.run.stage(), Workers: 1, SKU: w.SKU("free")}
		one := b.starts.expect(batch.Key(), batch.Workers)
		if err := w.Ask(ctx, batch); err != nil {
			return time.Time{}, err
		}
		_, err := one.wait(ctx)
		return one.leased, err
	}); err != nil {
		return err
	}
	if err := b.each(ctx, "explain", n, func(i int) (time.Time, error) {
		err := w.explain(ctx, b.waits[i%len(b.waits)])
		return time.Now(), err
	}); err != nil {
		return err
	}
	return b.each(ctx, "pending view", max(1, n/5), func(int) (time.Time, error) {
		_, err := w.Client.Pending(ctx)
		return time.Now(), err
	})
}

// each does one thing after the other, and adds how long each took until the time
// that it answers.
func (b *beside) each(ctx context.Context, what string, n int, do func(i int) (time.Time, error)) error {
	name := fmt.Sprintf("%s, %d in %s", what, len(b.others), plural(b.groups, "group"))
	var took []float64
	err := b.w.Measure(ctx, name, func() (int, error) {
		for i, began := 0, time.Now(); i < n && (i < fewest || time.Since(began) < eachWithin); i++ {
			begun := time.Now()
			done, err := do(i)
			if err != nil {
				return i, err
			}
			took = append(took, millis(done.Sub(begun)))
		}
		return len(took), nil
	})
	if err != nil {
		return err
	}
	f := Figure{Name: name, Unit: "ms", Samples: took, Against: b.alone[what]}
	if f.Against == "" {
		b.alone[what] = name
	} else {
		f.Target = &Target{Of: Ratio, AtMost: 1.5}
	}
	b.w.run.Add(f)
	return nil
}

// explainAny asks why any of all that wait does, beside a read of the same.
func (b *beside) explainAny(ctx context.Context) error {
	random := rand.New(rand.NewPCG(1, 2)) // each run asks for the same ones
	w, n := b.w, b.w.run.Sized(1000, 10)
	name := func(what string) string { return fmt.Sprintf("%s any, %s", what, plural(b.groups, "group")) }
	ask := func(what string, target *Target, against string, call func(client.Key) error) error {
		took, err := w.timed(ctx, name(what), n, func(int) error { return call(b.others[random.IntN(len(b.others))]) })
		w.run.Add(Figure{Name: name(what), Unit: "ms", Samples: took, Target: target, Against: against})
		return err
	}
	if err := ask("get", nil, "", func(key client.Key) error {
		_, err := w.Client.Get(ctx, key)
		return err
	}); err != nil {
		return err
	}
	return ask("explain", &Target{Of: P99, AtMost: 100}, name("get"), func(key client.Key) error { return w.explain(ctx, key) })
}

func (w *World) explain(ctx context.Context, key client.Key) error {
	_, err := berthv1.NewExplanationsClient(w.Conn).ExplainReservation(ctx, &berthv1.ExplainReservationRequest{Job: key.Job, Stage: key.Stage, Name: key.Name})
	return err
}

// queue asks for n reservations that no executor of an SKU is large enough for,
// in so many groups, and answers their keys.
func (w *World) queue(ctx context.Context, n, groups int, sku string) ([]client.Key, error) {
	keys := make([]client.Key, n)
	began := time.Now()
	err := w.Measure(ctx, fmt.Sprintf("queue %d in %s", n, plural(groups, "group")), func() (int, error) {
		_, err := callers(ctx, 256, bounds{most: n}, func(ctx context.Context, _, i int) error {
			b := waitingBatch(w.Job(i%waitingJobs), w.run.stage(), w.SKU(sku), i%groups)
			keys[i] = b.Key()
			return w.Ask(ctx, b)
		})
		return n, err
	})
	w.run.Say("%d reservations queued at %.0f a second", n, float64(n)/time.Since(began).Seconds())
	return keys, err
}

// waitingJobs is of how many jobs those are that only wait.
const waitingJobs = 100

// waitingBatch is one that no executor is large enough for, in one of many groups.
func waitingBatch(job, stage, sku string, group int) Batch {
	return Batch{Job: job, Stage: stage, Workers: 4, SKU: sku, CPU: int64(2000 + group)}
}

func plural(n int, what string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(n, what, ""))
}
