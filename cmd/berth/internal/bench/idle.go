package bench

import (
	"context"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

const (
	// settleFor is how long a fleet that has joined is left alone before it is
	// looked at, emptyFor how long a cluster without one is looked at.
	settleFor = 15 * time.Second
	emptyFor  = 5 * time.Second
	// lookEvery is how often both are.
	lookEvery = time.Second
)

// services are the processes whose cost an idle cluster is told by: Berth's own.
var services = []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner, model.ServiceGateway}

var idle = Workload{
	Name:  "idle",
	Shows: "10,000 executors without work: processors and memory",
	Run: func(ctx context.Context, w *World) error {
		r := w.run
		empty, err := w.watchIdle(ctx, "no executors, a second", emptyFor)
		if err != nil {
			return err
		}
		if err := w.Simulate(ctx, "many", r.Sized(10_000, 10), "slots=4"); err != nil {
			return err
		}
		if err := store.Sleep(ctx, settleFor); err != nil {
			return err
		}
		full, err := w.watchIdle(ctx, "idle, a second", r.Idle)
		if err != nil {
			return err
		}
		const none, all, etcd, first = "no executors: ", "idle: ", "processors of etcd", "memory, first third"
		third := len(full.memory) / 3
		r.Add(Figure{Name: none + "processors", Samples: empty.services})
		r.Add(Figure{Name: all + "processors", Samples: full.services, Against: none + "processors", Target: &Target{Of: Median, AtMost: 0.1}})
		r.Add(Figure{Name: none + etcd, Samples: empty.etcd})
		r.Add(Figure{Name: all + etcd, Samples: full.etcd, Against: none + etcd})
		r.Add(Figure{Name: none + "memory", Unit: "MB", Samples: empty.memory})
		r.Add(Figure{Name: all + first, Unit: "MB", Samples: full.memory[:third], Against: none + "memory"})
		r.Add(Figure{
			Name: all + "memory, last third", Unit: "MB", Samples: full.memory[len(full.memory)-third:],
			Against: all + first, Target: &Target{Of: Ratio, AtMost: 1.05},
		})
		r.Note("processors and memory are those of registry, executor-state, assigner and gateway together")
		return nil
	},
}

// looks are what processes took while nothing was asked of them: how many
// processors, and MB of memory, a sample a look.
type looks struct{ services, etcd, memory []float64 }

// watchIdle looks at the processes again and again.
func (w *World) watchIdle(ctx context.Context, phase string, window time.Duration) (l looks, err error) {
	return l, w.Measure(ctx, phase, func() (int, error) {
		last, err := measureUsage(w.pids())
		if err != nil {
			return 0, err
		}
		for began := time.Now(); time.Since(began) < window; {
			if err := store.Sleep(ctx, lookEvery); err != nil {
				return 0, err
			}
			now, err := measureUsage(w.pids())
			if err != nil {
				return 0, err
			}
			kept, err := w.memory()
			if err != nil {
				return 0, err
			}
			l.add(last, now, kept)
			last = now
		}
		return int(window / time.Second), nil
	})
}

// add adds what was taken from one reading to the next.
func (l *looks) add(from, to usage, kept map[string]float64) {
	seconds, used, memory := to.at.Sub(from.at).Seconds(), 0.0, 0.0
	for _, service := range services {
		used += to.kinds[service] - from.kinds[service]
		memory += kept[service]
	}
	l.services = append(l.services, used/seconds)
	l.etcd = append(l.etcd, (to.kinds["etcd"]-from.kinds["etcd"])/seconds)
	l.memory = append(l.memory, memory)
}
