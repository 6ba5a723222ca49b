package bench

import (
	"context"
	"fmt"
	"time"

	"berth.dev/pkg/store"
)

const (
	// idleSeconds is how long a fleet without work is looked at.
	idleSeconds = 3
	// batchCallers is how many callers ask for batches at once.
	batchCallers = 64
)

var batches = Workload{
	Name:  "batches",
	Shows: "strict batches, asked for until all workers are started",
	Worlds: func(ctx context.Context, r *Run) error {
		if err := r.World(ctx, setup{}, onOneMember); err != nil {
			return err
		}
		r.addTxns()
		return r.World(ctx, setup{members: 3}, onThreeMembers)
	},
}

// The names of figures that others are compared with.
const (
	puts64   = "etcd, 64 callers"
	ofEight  = "batches of 8"
	allAlone = ", alone"
)

// onOneMember measures batches of every size.
func onOneMember(ctx context.Context, w *World) error {
	f, err := w.free(ctx)
	if err != nil {
		return err
	}
	// What heartbeats and renewals cost by themselves: no part of a batch.
	if err := w.Measure(ctx, "idle, a second", func() (int, error) { return idleSeconds, store.Sleep(ctx, idleSeconds*time.Second) }); err != nil {
		return err
	}
	etcd := w.puts(batchCallers)
	eights := f.eights(ofEight, etcd.name)
	eights.target = &Target{Of: Median, AtLeast: 1000}
	spread := f.eights("batches of 8, spread", etcd.name)
	spread.do = f.start(8, true)
	if err := w.repeat(ctx, etcd, eights, spread); err != nil {
		return err
	}
	if err := f.sizes(ctx, etcd.name); err != nil {
		return err
	}
	return f.alone(ctx)
}

// onThreeMembers measures batches of 8 where each write is on two disks of three
// before it is acknowledged: here, all on this machine.
func onThreeMembers(ctx context.Context, w *World) error {
	f, err := w.free(ctx)
	if err != nil {
		return err
	}
	etcd := w.puts(batchCallers)
	etcd.name, etcd.against = puts64+", 3 members", puts64
	eights := f.eights(ofEight+", 3 members", ofEight)
	eights.target = &Target{Of: Ratio, AtLeast: 0.6}
	return w.repeat(ctx, etcd, eights)
}

// free is a fleet that has room for all that is asked for, and what is seen of
// the batches there.
type free struct {
	w      *World
	starts *starts
}

func (w *World) free(ctx context.Context) (*free, error) {
	if err := w.Simulate(ctx, "free", w.run.Sized(2000, 10), "slots=150"); err != nil {
		return nil, err
	}
	f := &free{w: w, starts: newStarts()}
	return f, w.tail(ctx, f.starts.see)
}

// start is an operation: one batch, until every worker of it is started.
func (f *free) start(size int, spread bool) operation {
	return func(ctx context.Context, caller, _ int) error {
		b := Batch{Job: f.w.Job(caller), Stage: f.w.run.stage(), Workers: size, SKU: f.w.SKU("free"), Spread: spread}
		_, err := f.w.start(ctx, f.starts, b)
		return err
	}
}

func (f *free) eights(name, against string) series {
	return series{name: name, callers: batchCallers, most: f.w.run.Sized(3000, 16), do: f.start(8, false), against: against}
}

// sizes measures how many workers a second are started, by the size of their
// batches. The larger ones are to start more.
func (f *free) sizes(ctx context.Context, against string) error {
	r := f.w.run
	// No more than these many workers in one repeat, so that capacity stays free
	// to the end.
	workers := r.Sized(8000, 64)
	for _, size := range []int{1, 10, 100, 1000} {
		most := workers / size
		if most == 0 {
			break
		}
		s := series{
			name: fmt.Sprintf("workers, %d a batch", size), callers: min(batchCallers, most), most: most, units: size,
			do: f.start(size, false), against: against,
		}
		if size > 1 {
			s.target = &Target{Of: Ratio, AtLeast: 1}
		}
		if err := f.w.repeat(ctx, s); err != nil {
			return err
		}
		against = s.name
	}
	return nil
}

// alone starts batches one by one, so that no two share a transaction.
func (f *free) alone(ctx context.Context) error {
	for _, size := range []int{1, 8, 64, 256} {
		n := f.w.run.Sized(20, 3)
		err := f.w.Measure(ctx, fmt.Sprint("batch of ", size, allAlone), func() (int, error) {
			_, err := callers(ctx, 1, bounds{most: n}, f.start(size, false))
			return n, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addTxns adds how many transactions a batch took alone, which the audit has
// counted.
func (r *Run) addTxns() {
	against := ""
	for _, size := range []int{1, 8, 64, 256} {
		for _, c := range r.Costs {
			if c.Phase != fmt.Sprint("batch of ", size, allAlone) {
				continue
			}
			f := Figure{Name: fmt.Sprintf("transactions, batch of %d", size), Samples: []float64{float64(c.Writes[writesTxn]) / float64(c.Operations)}, Against: against}
			if against == "" {
				against = f.Name
			} else {
				f.Target = &Target{Of: Ratio, AtMost: 1.1}
			}
			r.Add(f)
		}
	}
}

// start asks for a batch and waits until every worker of it is started.
func (w *World) start(ctx context.Context, s *starts, b Batch) (time.Time, error) {
	one := s.expect(b.Key(), b.Workers)
	if err := w.Ask(ctx, b); err != nil {
		return time.Time{}, err
	}
	return one.wait(ctx)
}
