package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

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

// beats reads the figures of all replicas of executor-state.
func (w *World) beats(ctx context.Context) (beatsTaken, error) {
	var sum beatsTaken
	for _, p := range w.site.processes[model.ServiceExecutorState] {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/metrics", p.Addresses().HTTP), nil)
		if err != nil {
			return sum, err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return sum, err
		}
		taken, err := readBeats(answer.Body)
		answer.Body.Close()
		if err != nil {
			return sum, err
		}
		sum.count += taken.count
		sum.late += taken.late
	}
	return sum, nil
}

// readBeats finds the heartbeats in the figures of one replica.
func readBeats(figures io.Reader) (taken beatsTaken, err error) {
	found := 0
	lines := bufio.NewScanner(figures)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var into *float64
		switch name {
		case "berth_executor_state_heartbeat_lateness_seconds_count":
			into = &taken.count
		case "berth_executor_state_heartbeat_lateness_seconds_sum":
			into = &taken.late
		default:
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return taken, err
		}
		found++
	}
	if err := lines.Err(); err != nil {
		return taken, err
	}
	if found != 2 {
		return taken, fault.New(fault.Internal, fault.ReasonInternal, "the figures of executor-state tell of no heartbeats")
	}
	return taken, nil
}
