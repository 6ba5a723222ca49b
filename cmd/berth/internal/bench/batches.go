package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/store"
)

const (
	// idleSeconds is the duration of the measurement of a fleet without work.
	idleSeconds = 3
	// batchCallers is the number of callers that request batches.
	batchCallers = 64
)

var batches = Workload{
	Name:  "batches",
	Shows: "batches, from the request until all workers are started",
	Run: func(ctx context.Context, r *Run) error {
		if err := r.World(ctx, fleet.Config{}, onOneMember); err != nil {
			return err
		}
		r.addTxns()
		return r.World(ctx, fleet.Config{Etcd: 3}, onThreeMembers)
	},
}

// Names of figures, or parts of them, that are used more than once.
const (
	ofEight     = "batches of 8"
	aloneSuffix = ", alone"
)

// onOneMember measures batches of every size.
func onOneMember(ctx context.Context, w *World) error {
	if err := w.freeFleet(ctx, w.Sized(2000, 10), "slots=150"); err != nil {
		return err
	}
	// This phase measures the cost of heartbeats and renewals, which is not part of the cost
	// of a batch.
	if _, err := w.Measure(ctx, "idle, a second", func() (int, error) {
		return idleSeconds, store.Sleep(ctx, idleSeconds*time.Second)
	}); err != nil {
		return err
	}
	etcd := w.puts(batchCallers)
	packed := w.batchesOf8(ofEight, etcd.name)
	packed.target = &Target{Of: Median, AtLeast: 1000}
	spread := w.batchesOf8("batches of 8, spread", etcd.name)
	spread.do = w.starting(8, true)
	if err := w.repeat(ctx, etcd, packed, spread); err != nil {
		return err
	}
	if err := w.startSizes(ctx, etcd.name); err != nil {
		return err
	}
	// The batches run one at a time, so that no two share a transaction.
	for _, size := range []int{1, 8, 64, 256} {
		if _, err := w.load(ctx, fmt.Sprint("batch of ", size, aloneSuffix), 1, bounds{most: w.Sized(20, 3)},
			w.starting(size, false)); err != nil {
			return err
		}
	}
	return nil
}

// onThreeMembers measures batches of 8 with three members of etcd on this machine. etcd
// acknowledges a write after two members have written it to disk.
func onThreeMembers(ctx context.Context, w *World) error {
	if err := w.freeFleet(ctx, w.Sized(2000, 10), "slots=150"); err != nil {
		return err
	}
	etcd := w.puts(batchCallers)
	etcd.name, etcd.against = puts64+", 3 members", puts64
	packed := w.batchesOf8(ofEight+", 3 members", ofEight)
	packed.target = &Target{Of: Ratio, AtLeast: 0.6}
	return w.repeat(ctx, etcd, packed)
}

// starting returns an operation that requests a batch and waits until all its workers
// are started.
func (w *World) starting(size int, spread bool) operation {
	return func(ctx context.Context, caller, _ int) error {
		b := Batch{Job: w.Job(caller), Stage: w.stage(), Workers: size, SKU: w.SKU("free"), Spread: spread}
		_, _, err := w.start(ctx, b)
		return err
	}
}

func (w *World) batchesOf8(name, against string) series {
	return series{name: name, callers: batchCallers, most: w.Sized(3000, 16), do: w.starting(8, false),
		against: against}
}

// startSizes measures the number of workers that start per second, by the size of batches.
// The target is that larger batches start at least as many workers per second.
func (w *World) startSizes(ctx context.Context, against string) error {
	// The number of workers of one repeat is bounded so that capacity stays free.
	workers := w.Sized(8000, 64)
	for _, size := range []int{1, 10, 100, 1000} {
		most := max(1, workers/size)
		s := series{
			name: fmt.Sprintf("workers, %d a batch", size), callers: min(batchCallers, most), most: most, units: size,
			do: w.starting(size, false), against: against,
		}
		if size > 1 {
			s.target = &Target{Of: Ratio, AtLeast: 1}
		}
		if err := w.repeat(ctx, s); err != nil {
			return err
		}
		against = s.name
	}
	return nil
}

// addTxns adds a figure for each size of batches that were started one at a time: the number
// of transactions of a batch, as counted by the audit.
func (r *Run) addTxns() {
	smallest := ""
	for _, c := range r.Costs {
		batch, alone := strings.CutSuffix(c.Phase, aloneSuffix)
		if !alone {
			continue
		}
		f := Figure{Name: "transactions, " + batch, Samples: []float64{float64(c.Writes[writesTxn]) / float64(c.Operations)}}
		if smallest == "" {
			smallest = f.Name
		} else {
			f.Against, f.Target = smallest, &Target{Of: Ratio, AtMost: 1.1}
		}
		r.Add(f)
	}
}
