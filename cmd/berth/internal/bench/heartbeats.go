package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	executorstate "berth.dev/services/executor-state"
)

var heartbeats = Workload{
	Name:  "heartbeats",
	Shows: "10,000 executors join, heartbeat, and are killed at once",
	Run:   func(ctx context.Context, w *World) error { return joinBeatDie(ctx, w, w.run.Sized(10_000, 10)) },
}

const (
	// beatWindow is long enough for four heartbeats of every executor, idleWindow
	// for what the services do without any.
	beatWindow = 4 * executorstate.HeartbeatEvery
	idleWindow = 2 * executorstate.HeartbeatEvery
	// fleetSize is the largest fleet that Berth is made for: what heartbeats cost
	// is told for it too.
	fleetSize = 100_000
	// findingTimeout bounds how long a mass loss may go untold.
	findingTimeout = 30 * time.Second
)

// joinBeatDie measures the life of n executors of one process.
func joinBeatDie(ctx context.Context, w *World, n int) error {
	r := w.run
	idle, err := w.cost(ctx, "no executors", func() (int, error) { return 0, store.Sleep(ctx, idleWindow) })
	if err != nil {
		return err
	}
	from, err := w.revision(ctx)
	if err != nil {
		return err
	}
	// One of them is PREFIX-0, and so on.
	p := watchPresences(w.Etcd, w.Space.Key(model.Ref{Kind: model.KindLive, ID: w.SKU("many")}), from+1)
	defer p.watch.Close()

	began := time.Now()
	joining, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	listed := make(chan error, 1)
	go func() {
		err := w.Simulate(ctx, "many", n, "slots=4")
		fail(err) // no error is none: then all are present
		listed <- err
	}()
	joined, err := p.await(joining, n)
	if late := <-listed; late != nil {
		return late
	}
	if err != nil {
		// All were listed a moment before the watch has shown them.
		joined, err = p.await(ctx, n)
	}
	if err != nil {
		return err
	}
	r.Add(Figure{Name: "join, until all are READY", Unit: "s", Samples: []float64{joined.Sub(began).Seconds()}})

	if err := beat(ctx, w, n, idle); err != nil {
		return err
	}

	sim := w.sims[len(w.sims)-1]
	began = time.Now()
	r.Say("kill -9 of %d executors", n)
	sim.Kill()
	gone, err := p.await(ctx, 0)
	if err != nil {
		return err
	}
	r.Add(Figure{Name: "killed, all UNREACHABLE", Unit: "s", Samples: []float64{gone.Sub(began).Seconds()}})
	told, err := w.massLoss(ctx)
	if err != nil {
		return err
	}
	r.Add(Figure{Name: "killed, MASS_LOSS is told", Unit: "s", Samples: []float64{told.Sub(began).Seconds()}})
	return nil
}

// beat measures what the heartbeats of n executors cost, beside what the
// services cost without them.
func beat(ctx context.Context, w *World, n int, idle Cost) error {
	r := w.run
	var count, late float64
	beating, err := w.cost(ctx, "a heartbeat", func() (int, error) {
		from, err := w.beats(ctx)
		if err != nil {
			return 0, err
		}
		if err := store.Sleep(ctx, beatWindow); err != nil {
			return 0, err
		}
		to, err := w.beats(ctx)
		count, late = to.count-from.count, to.late-from.late
		return int(count), err
	})
	if err != nil {
		return err
	}
	if count == 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "no heartbeat came within %v", beatWindow)
	}
	rate := count / beating.Seconds
	r.Add(Figure{Name: "heartbeats", Unit: "/s", Samples: []float64{rate}})
	r.Add(Figure{Name: "lateness, mean", Unit: "ms", Samples: []float64{1000 * late / count}})
	r.Note("processors for 1,000 heartbeats a second:")
	r.Note("  %s", processors(idle, beating, 1000/rate))
	r.Note("processors for %d executors, %.0f heartbeats a second:", fleetSize, rate*fleetSize/float64(n))
	r.Note("  %s", processors(idle, beating, fleetSize/float64(n)))
	return nil
}

// processors says how many processors each kind of process had busy in a phase
// beyond those of an idle one, times a factor.
func processors(idle, busy Cost, factor float64) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(idle.CPU)) {
		if kind == kindLoad {
			continue
		}
		more := busy.CPU[kind]/busy.Seconds - idle.CPU[kind]/idle.Seconds
		parts = append(parts, fmt.Sprintf("%s %.2f", kind, max(0, more)*factor))
	}
	return strings.Join(parts, ", ")
}

// cost is Measure, and answers what was noted.
func (w *World) cost(ctx context.Context, phase string, do func() (int, error)) (Cost, error) {
	if err := w.Measure(ctx, phase, do); err != nil {
		return Cost{}, err
	}
	return w.run.Costs[len(w.run.Costs)-1], nil
}

// massLoss waits until a finding reports a mass loss and returns when it did.
func (w *World) massLoss(ctx context.Context) (at time.Time, err error) {
	err = patiently(ctx, findingTimeout, "no finding reports a mass loss", func(ctx context.Context) bool {
		answer, _ := w.Client.Findings(ctx) // retried after an error
		at = time.Now()
		return slices.ContainsFunc(answer.GetFindings(), func(f *berthv1.Finding) bool { return f.GetKind() == "MASS_LOSS" })
	})
	return at, err
}
