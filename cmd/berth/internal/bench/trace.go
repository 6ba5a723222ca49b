package bench

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/replay"
)

var trace = Workload{
	Name:  "trace",
	Shows: "a trace of real batches, as fast as possible (--trace)",
	Run: func(ctx context.Context, r *Run) error {
		if r.Trace == "" {
			r.Note("skipped: --trace is not set")
			return nil
		}
		return r.World(ctx, fleet.Config{}, playTrace)
	},
}

// playTrace runs `berth replay` in a separate process. The callers, the executors and a
// second audit run in that process.
func playTrace(ctx context.Context, w *World) error {
	if err := w.repeat(ctx, w.puts(64)); err != nil {
		return err
	}
	file := filepath.Join(w.dir, "trace.json")
	player := exec.CommandContext(ctx, w.binary, "replay", w.Trace, "--settle", "3s", "--report", file,
		"--gateway", strings.Join(w.cluster.Gateways, ","), "--agents-gateway", strings.Join(w.cluster.AgentsGateways, ","),
		"--etcd-endpoints", strings.Join(w.cluster.Etcd, ","), "--cluster", w.cluster.Name)
	player.Stderr = w.Status
	var report replay.Report
	cost, err := w.Measure(ctx, "a worker of the trace", func() (int, error) {
		if err := player.Run(); err != nil {
			return 0, fault.New(fault.Internal, fault.ReasonInternal, "berth replay failed").Because(err)
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &report)
		}
		return report.WorkersRunning, err
	})
	if err != nil {
		return err
	}
	used := (player.ProcessState.UserTime() + player.ProcessState.SystemTime()).Seconds()
	cost.CPU[kindSim] = used
	cost.Others = max(0, cost.Others-used/cost.Seconds)
	w.Costs[len(w.Costs)-1] = cost
	sum := 0.0
	for _, service := range services {
		sum += cost.CPU[service]
	}
	thousands := float64(report.WorkersRunning) / 1000
	w.Note("%d batches with %d workers on %d executors; %d granted, %d withdrawn, %d waiting; %d workers ran",
		report.Batches, report.Workers, report.Executors, report.Granted, report.Withdrawn, report.Waiting,
		report.WorkersRunning)
	w.Note("sim is the replay: callers, executors and an audit")
	w.Add(Figure{Name: "first request to last change", Unit: "s", Samples: []float64{report.Seconds}})
	w.Add(Figure{Name: "batches requested", Unit: "/s", Samples: []float64{float64(report.Batches) / report.AskedSeconds},
		Against: puts64})
	w.Add(Figure{Name: "services, of 1,000 workers", Unit: "s", Samples: []float64{sum / thousands}})
	w.Add(Figure{Name: "etcd, of 1,000 workers", Unit: "s", Samples: []float64{cost.CPU["etcd"] / thousands}})
	return nil
}
