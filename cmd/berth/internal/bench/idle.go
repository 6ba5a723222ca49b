package bench

import (
	"context"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

const (
	// settleFor is the time between the registration of the last executor and the
	// measurement. emptyFor is the duration of the measurement without executors.
	settleFor = 15 * time.Second
	emptyFor  = 5 * time.Second
	// lookEvery is the interval between two samples.
	lookEvery = time.Second
)

// services are the kinds of processes whose cost the idle workload measures as the cost of
// Berth.
var services = []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner, model.ServiceGateway}

var idle = Workload{
	Name:  "idle",
	Shows: "10,000 executors without work: processors and memory",
	Run: inWorld(func(ctx context.Context, w *World) error {
		empty, err := w.sampleIdle(ctx, "no executors, a second", emptyFor)
		if err != nil {
			return err
		}
		if err := w.Simulate(ctx, "many", w.Sized(10_000, 10), "slots=4"); err != nil {
			return err
		}
		if err := store.Sleep(ctx, settleFor); err != nil {
			return err
		}
		full, err := w.sampleIdle(ctx, "idle, a second", w.Idle)
		if err != nil {
			return err
		}
		const none, all, etcd, first = "no executors: ", "idle: ", "processors of etcd", "memory, first third"
		third := len(full.memory) / 3
		w.Add(Figure{Name: none + "processors", Samples: empty.services})
		w.Add(Figure{Name: all + "processors", Samples: full.services, Against: none + "processors",
			Target: &Target{Of: Median, AtMost: 0.1}})
		w.Add(Figure{Name: none + etcd, Samples: empty.etcd})
		w.Add(Figure{Name: all + etcd, Samples: full.etcd, Against: none + etcd})
		w.Add(Figure{Name: none + "memory", Unit: "MB", Samples: empty.memory})
		w.Add(Figure{Name: all + first, Unit: "MB", Samples: full.memory[:third], Against: none + "memory"})
		w.Add(Figure{
			Name: all + "memory, last third", Unit: "MB", Samples: full.memory[len(full.memory)-third:],
			Against: all + first, Target: &Target{Of: Ratio, AtMost: 1.05},
		})
		w.Note("processors and memory are those of registry, executor-state, assigner and gateway together")
		return nil
	}),
}

// idleSamples has samples of an idle cluster: the number of processors that the services and
// etcd use, and the memory of the services in MB.
type idleSamples struct{ services, etcd, memory []float64 }

func (w *World) sampleIdle(ctx context.Context, phase string, window time.Duration) (s idleSamples, err error) {
	_, err = w.Measure(ctx, phase, func() (int, error) {
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
			seconds, used, memory := now.at.Sub(last.at).Seconds(), 0.0, 0.0
			for _, service := range services {
				used += now.cpu[service] - last.cpu[service]
				memory += now.memory[service]
			}
			s.services = append(s.services, used/seconds)
			s.etcd = append(s.etcd, (now.cpu["etcd"]-last.cpu["etcd"])/seconds)
			s.memory = append(s.memory, memory)
			last = now
		}
		return int(window / time.Second), nil
	})
	return s, err
}
