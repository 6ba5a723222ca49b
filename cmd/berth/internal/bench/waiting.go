package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dustin/go-humanize/english"

	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
)

var waiting = Workload{
	Name:  "waiting",
	Shows: "cost of 100,000 queued reservations for others; explain",
	Run: func(ctx context.Context, r *Run) error {
		for _, groups := range []int{1, 1000} {
			config := fleet.Config{Seed: seedExecutors("full", r.Sized(10_000, 10))}
			err := r.World(ctx, config, func(ctx context.Context, w *World) error {
				b := &isolation{w: w, groups: groups}
				return b.measure(ctx)
			})
			if err != nil {
				return err
			}
		}
		return nil
	},
}

// The measurement of an operation ends after eachWithin if it has at least minSamples
// samples. So slow operations get fewer samples.
const (
	eachWithin = 5 * time.Second
	minSamples = 20
)

// isolation measures whether queued reservations of other groups slow down two groups: one
// whose batches start, and one whose batches stay queued.
type isolation struct {
	w      *World
	groups int // the number of other groups
	// queued has the reservations of the group whose batches stay queued. others has the
	// reservations of the other groups.
	queued, others []client.Key
}

// measure repeats the measurements with an increasing number of reservations in the other
// groups.
func (b *isolation) measure(ctx context.Context) error {
	if err := b.w.freeFleet(ctx, b.w.Sized(500, 4), "slots=10"); err != nil {
		return err
	}
	sizes := []int{0, 10_000, 100_000}
	if b.groups > 1 {
		// The size with one reservation in each group shows the cost of the groups alone.
		sizes = []int{0, b.groups, 10_000, 100_000}
	}
	for _, size := range sizes {
		if more := b.w.Sized(size, 0) - len(b.others); more > 0 {
			keys, err := b.w.queue(ctx, more, b.groups, "full")
			if err != nil {
				return err
			}
			b.others = append(b.others, keys...)
		}
		if err := b.operations(ctx); err != nil {
			return err
		}
	}
	return b.explainAny(ctx)
}

// operations measures operations that do not use the other groups. It also measures the view
// of all pending groups.
func (b *isolation) operations(ctx context.Context) error {
	w, n := b.w, b.w.Sized(200, 5)
	if err := b.each(ctx, "upsert", n, func(int) (time.Time, error) {
		batch := Batch{Job: w.Job(100), Stage: w.stage(), Workers: 1, SKU: w.SKU("none")}
		b.queued = append(b.queued, batch.Key())
		err := w.Ask(ctx, batch)
		return time.Now(), err
	}); err != nil {
		return err
	}
	if err := b.each(ctx, "grant", n, func(int) (time.Time, error) {
		leased, _, err := w.start(ctx, Batch{Job: w.Job(101), Stage: w.stage(), Workers: 1, SKU: w.SKU("free")})
		return leased, err
	}); err != nil {
		return err
	}
	if err := b.each(ctx, "explain", n, func(i int) (time.Time, error) {
		_, err := w.Client.Explain(ctx, b.queued[i%len(b.queued)])
		return time.Now(), err
	}); err != nil {
		return err
	}
	return b.each(ctx, "pending view", max(1, n/5), func(int) (time.Time, error) {
		_, err := w.Client.Pending(ctx)
		return time.Now(), err
	})
}

// each runs operations one after another and adds a figure of their durations. do returns
// the time at which its operation ended.
func (b *isolation) each(ctx context.Context, what string, n int, do func(i int) (time.Time, error)) error {
	name := func(n int) string { return fmt.Sprintf("%s, %d in %s", what, n, plural(b.groups, "group")) }
	f := Figure{Name: name(len(b.others)), Unit: "ms"}
	_, err := b.w.Measure(ctx, f.Name, func() (int, error) {
		for i, began := 0, time.Now(); i < n && (i < minSamples || time.Since(began) < eachWithin); i++ {
			begun := time.Now()
			done, err := do(i)
			if err != nil {
				return i, err
			}
			f.Samples = append(f.Samples, millis(done.Sub(begun)))
		}
		return len(f.Samples), nil
	})
	if err != nil {
		return err
	}
	if len(b.others) > 0 {
		f.Against, f.Target = name(0), &Target{Of: Ratio, AtMost: 1.5}
	}
	b.w.Add(f)
	return nil
}

// explainAny measures the explanation of random queued reservations. The baseline is Get of
// random queued reservations.
func (b *isolation) explainAny(ctx context.Context) error {
	random := rand.New(rand.NewPCG(1, 2)) // the same reservations in every run
	w, n := b.w, b.w.Sized(1000, 10)
	name := func(what string) string { return fmt.Sprintf("%s any, %s", what, plural(b.groups, "group")) }
	measure := func(what string, target *Target, against string, call func(context.Context, client.Key) error) error {
		l, err := w.load(ctx, name(what), 1, bounds{most: n}, func(ctx context.Context, _, _ int) error {
			return call(ctx, b.others[random.IntN(len(b.others))])
		})
		w.Add(Figure{Name: name(what), Unit: "ms", Samples: l.Took, Target: target, Against: against})
		return err
	}
	if err := measure("get", nil, "", func(ctx context.Context, key client.Key) error {
		_, err := w.Client.Get(ctx, key)
		return err
	}); err != nil {
		return err
	}
	return measure("explain", &Target{P99: new(100.0)}, name("get"), func(ctx context.Context, key client.Key) error {
		_, err := w.Client.Explain(ctx, key)
		return err
	})
}

// queue requests n reservations in a number of groups and returns their keys. The
// reservations stay queued, because no executor of the SKU is large enough for them.
func (w *World) queue(ctx context.Context, n, groups int, sku string) ([]client.Key, error) {
	keys := make([]client.Key, n)
	l, err := w.load(ctx, fmt.Sprintf("queue %d in %s", n, plural(groups, "group")), 256, bounds{most: n},
		func(ctx context.Context, _, i int) error {
			b := queuedBatch(w.Job(i%queuedJobs), w.stage(), w.SKU(sku), i%groups)
			keys[i] = b.Key()
			return w.Ask(ctx, b)
		})
	w.Say("%d reservations queued at %.0f a second", n, l.Rate())
	return keys, err
}

// queuedJobs is the number of jobs of the reservations that stay queued.
const queuedJobs = 100

// queuedBatch returns a batch of one of many groups. The batch stays queued, because no
// executor is large enough for it.
func queuedBatch(job, stage, sku string, group int) Batch {
	return Batch{Job: job, Stage: stage, Workers: 4, SKU: sku, CPU: int64(2000 + group)}
}

func plural(n int, what string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(n, what, ""))
}
