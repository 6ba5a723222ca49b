package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	executorstate "berth.dev/services/executor-state"
)

var heartbeats = Workload{
	Name:  "heartbeats",
	Shows: "10,000 executors join, heartbeat, and are killed at once",
	Run:   inWorld(measureHeartbeats),
}

const (
	// heartbeatWindow is the time in which every executor sends four heartbeats. idleWindow
	// is the duration of the measurement without executors.
	heartbeatWindow = 4 * executorstate.HeartbeatEvery
	idleWindow      = 2 * executorstate.HeartbeatEvery
	// fleetSize is the largest fleet that Berth is designed for.
	fleetSize = 100_000
	// findingTimeout bounds the time until a mass loss is reported.
	findingTimeout = 30 * time.Second
)

// measureHeartbeats measures the executors of one process from their start until they are
// killed and their loss is reported.
func measureHeartbeats(ctx context.Context, w *World) error {
	n := w.Sized(10_000, 10)
	idle, err := w.Measure(ctx, "no executors", func() (int, error) { return 0, store.Sleep(ctx, idleWindow) })
	if err != nil {
		return err
	}
	from, err := w.revision(ctx)
	if err != nil {
		return err
	}
	p := &presences{watch: w.Etcd.Watch(w.Space.Key(model.Ref{Kind: model.KindLive, ID: w.SKU("many")}), from+1),
		keys: map[string]bool{}}
	defer p.watch.Close()

	began := time.Now()
	if err := w.startSim(ctx, "many", n, "slots=4"); err != nil {
		return err
	}
	joined, err := p.await(ctx, n)
	if err != nil {
		return err
	}
	w.Add(Figure{Name: "join, until all are READY", Unit: "s", Samples: []float64{joined.Sub(began).Seconds()}})

	if err := w.heartbeatCost(ctx, n, idle); err != nil {
		return err
	}

	sim := w.processes[kindSim][0]
	began = time.Now()
	w.Say("kill -9 of %d executors", n)
	sim.Kill()
	unreachable, err := p.await(ctx, 0)
	if err != nil {
		return err
	}
	w.Add(Figure{Name: "killed, all UNREACHABLE", Unit: "s", Samples: []float64{unreachable.Sub(began).Seconds()}})
	err = until(ctx, findingTimeout, "no finding reports a mass loss", func(ctx context.Context) bool {
		answer, _ := w.Client.Findings(ctx) // retried after an error
		return slices.ContainsFunc(answer.GetFindings(), func(f *berthv1.Finding) bool { return f.GetKind() == "MASS_LOSS" })
	})
	if err != nil {
		return err
	}
	w.Add(Figure{Name: "killed, MASS_LOSS is reported", Unit: "s", Samples: []float64{time.Since(began).Seconds()}})
	return nil
}

// heartbeatCost measures the cost of the heartbeats of n executors. It subtracts the cost of
// the services without executors.
func (w *World) heartbeatCost(ctx context.Context, n int, idle Cost) error {
	var count, late float64
	busy, err := w.Measure(ctx, "a heartbeat", func() (int, error) {
		fromCount, fromLate, err := w.heartbeats(ctx)
		if err != nil {
			return 0, err
		}
		if err := store.Sleep(ctx, heartbeatWindow); err != nil {
			return 0, err
		}
		toCount, toLate, err := w.heartbeats(ctx)
		count, late = toCount-fromCount, toLate-fromLate
		return int(count), err
	})
	if err != nil {
		return err
	}
	if count == 0 {
		return fault.New(fault.Internal, fault.ReasonInternal, "executor-state received no heartbeat within %v",
			heartbeatWindow)
	}
	rate := count / busy.Seconds
	w.Add(Figure{Name: "heartbeats", Unit: "/s", Samples: []float64{rate}})
	w.Add(Figure{Name: "lateness, mean", Unit: "ms", Samples: []float64{1000 * late / count}})
	w.Note("processors for 1,000 heartbeats a second:")
	w.Note("  %s", processors(idle, busy, 1000/rate))
	w.Note("processors for %d executors, %.0f heartbeats a second:", fleetSize, rate*fleetSize/float64(n))
	w.Note("  %s", processors(idle, busy, fleetSize/float64(n)))
	return nil
}

// processors returns how many more processors each kind of process used in a busy phase than
// in an idle phase, multiplied by a factor.
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

// presences follows the presence records of executors with a watch.
type presences struct {
	watch store.Watch
	keys  map[string]bool
}

// await waits until n executors are present. It returns the time at which the watch
// delivered the last change.
func (p *presences) await(ctx context.Context, n int) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for at = time.Now(); len(p.keys) != n; at = time.Now() {
		batch, err := p.watch.Next(ctx)
		if err != nil {
			return at, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%d executors are present, not %d", len(p.keys),
				n).Because(err)
		}
		for _, c := range batch.Changes {
			if c.Deleted {
				delete(p.keys, c.Key)
			} else {
				p.keys[c.Key] = true
			}
		}
	}
	return at, nil
}

// heartbeats returns the number of heartbeats that all replicas of executor-state have
// received, and the sum of their lateness in seconds. It does not count the first heartbeat
// of each stream.
func (w *World) heartbeats(ctx context.Context) (count, late float64, err error) {
	for _, p := range w.processes[model.ServiceExecutorState] {
		text, err := get(ctx, nil, p, "/metrics")
		if err != nil {
			return 0, 0, err
		}
		n, sum, err := readHeartbeats(bytes.NewReader(text))
		if err != nil {
			return 0, 0, err
		}
		count, late = count+n, late+sum
	}
	return count, late, nil
}

// readHeartbeats reads the number of heartbeats and the sum of their lateness from the
// metrics of a replica.
func readHeartbeats(metrics io.Reader) (count, late float64, err error) {
	parser := expfmt.NewTextParser(prometheus.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return 0, 0, err
	}
	for _, m := range families["berth_executor_state_heartbeat_lateness_seconds"].GetMetric() {
		return float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum(), nil
	}
	return 0, 0, fault.New(fault.Internal, fault.ReasonInternal, "the metrics of executor-state have no heartbeats")
}
