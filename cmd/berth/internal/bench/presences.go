package bench

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// presences follows which executors are present, by a watch of their keys.
type presences struct {
	watch store.Watch
	keys  map[string]bool
}

func watchPresences(s store.Store, prefix string, from int64) *presences {
	return &presences{watch: s.Watch(prefix, from), keys: map[string]bool{}}
}

// await waits until n executors are present, and says when that was seen.
func (p *presences) await(ctx context.Context, n int) (at time.Time, err error) {
	for at = time.Now(); len(p.keys) != n; at = time.Now() {
		batch, err := p.watch.Next(ctx)
		if err != nil {
			return at, fault.New(fault.Unavailable, fault.ReasonUnavailable, "%d executors are present, not %d", len(p.keys), n).Because(err)
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

// beatsTaken is how many heartbeats came, after the first of each stream, and the
// sum of how late they were, in seconds.
type beatsTaken struct{ count, late float64 }

// beats reads the metrics of all replicas of executor-state.
func (w *World) beats(ctx context.Context) (sum beatsTaken, err error) {
	for _, p := range w.site.processes[model.ServiceExecutorState] {
		text, err := get(ctx, p, "/metrics")
		if err != nil {
			return sum, err
		}
		taken, err := readBeats(bytes.NewReader(text))
		if err != nil {
			return sum, err
		}
		sum.count += taken.count
		sum.late += taken.late
	}
	return sum, nil
}

// readBeats finds the heartbeats in the metrics of a replica.
func readBeats(metrics io.Reader) (beatsTaken, error) {
	parser := expfmt.NewTextParser(prometheus.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return beatsTaken{}, err
	}
	for _, m := range families["berth_executor_state_heartbeat_lateness_seconds"].GetMetric() {
		return beatsTaken{count: float64(m.GetHistogram().GetSampleCount()), late: m.GetHistogram().GetSampleSum()}, nil
	}
	return beatsTaken{}, fault.New(fault.Internal, fault.ReasonInternal, "the metrics of executor-state have no heartbeats")
}
