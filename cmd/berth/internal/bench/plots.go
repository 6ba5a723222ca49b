package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/bench/chart"
)

// plot writes the plots of the report to a directory.
func (r *Report) plot(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	for file, c := range r.charts() {
		var b bytes.Buffer
		if err == nil {
			err = c.Write(&b)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b.Bytes(), 0o644)
		}
	}
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "--plots: cannot write to %s", dir).Because(err)
	}
	return nil
}

// charts returns the plots of the workloads in the report, by file name.
func (r *Report) charts() map[string]chart.Chart {
	sizes := []float64{1000, 10_000, fleetSize}
	charts := map[string]chart.Chart{
		"latency.svg": {
			Title: "Latency: share of operations completed within a time",
			X:     chart.Axis{Label: "milliseconds", Log: true}, Y: chart.Axis{Label: "percent", To: 100},
			Lines: []chart.Line{
				r.distribution("latency", "batches of 8, 100/s", false), r.distribution("latency", "4 puts in a row, 100/s", true),
				r.distribution("freed-to-leased", "freed to leased", false),
				r.distribution("freed-to-leased", "2 puts in a row, seen", true),
			},
		},
		"batch-size.svg": {
			Title: "Workers started a second, by the size of their batches",
			X:     chart.Axis{Label: "workers a batch", Log: true}, Y: chart.Axis{Label: "workers a second", Log: true},
			Lines: []chart.Line{
				r.over("batches", "Berth", "/s", "workers, %d a batch", []float64{1, 10, 100, 1000}),
				r.level("batches", "puts to etcd by as many callers", "/s", puts64, 1, 1000),
			},
		},
		"fleet-size.svg": {
			Title: "Latency of the inventory, by the size of the fleet",
			X:     chart.Axis{Label: "executors", Log: true}, Y: chart.Axis{Label: "milliseconds, median", Log: true},
			Lines: []chart.Line{
				r.over("fleet", "fit a batch of 100, in the core", "ms", "fit 100, %d executors", sizes),
				r.level("fleet", "as with 1,000 executors: fit", "ms", "fit 100, 1000 executors", 1000, fleetSize),
				r.over("fleet", "usage call, by the gateway", "ms", "usage, %d executors", sizes),
				r.level("fleet", "as with 1,000 executors: usage", "ms", "usage, 1000 executors", 1000, fleetSize),
			},
		},
		"waiting.svg": {
			Title: "Slowdown by reservations queued in 1,000 other groups",
			X:     chart.Axis{Label: "reservations queued in other groups", Log: true},
			Y:     chart.Axis{Label: "latency relative to none queued", To: 2},
			Lines: []chart.Line{
				{Name: "none queued", Baseline: true, Points: []chart.Point{{X: 1000, Y: 1}, {X: 100_000, Y: 1}}},
				r.slowdown("upsert"), r.slowdown("grant"), r.slowdown("explain"), r.slowdown("pending view"),
			},
		},
	}
	for file, c := range charts {
		c.Lines = slices.DeleteFunc(c.Lines, func(l chart.Line) bool { return len(l.Points) == 0 })
		charts[file] = c
		if !slices.ContainsFunc(c.Lines, func(l chart.Line) bool { return !l.Baseline }) {
			delete(charts, file)
		}
	}
	return charts
}

// figure returns a figure with samples, or nil if the report has no such figure.
func (r *Report) figure(workload, name, unit string) *Figure {
	for _, result := range r.Results {
		for i := range result.Figures {
			if f := &result.Figures[i]; result.Workload == workload && f.Name == name && f.Unit == unit && f.N > 0 {
				return f
			}
		}
	}
	return nil
}

// distribution returns the cumulative distribution of a figure in percent, as about
// 200 points.
func (r *Report) distribution(workload, name string, baseline bool) chart.Line {
	l := chart.Line{Name: name, Baseline: baseline}
	if f := r.figure(workload, name, "ms"); f != nil {
		sorted := slices.Sorted(slices.Values(f.Samples))
		step := max(1, len(sorted)/200)
		for i := step - 1; i < len(sorted); i += step {
			l.Points = append(l.Points, chart.Point{X: sorted[i], Y: 100 * float64(i+1) / float64(len(sorted))})
		}
	}
	return l
}

// over returns a line through the medians of the figures whose names differ only by a
// number.
func (r *Report) over(workload, name, unit, format string, sizes []float64) chart.Line {
	l := chart.Line{Name: name, Marked: true}
	for _, size := range sizes {
		if f := r.figure(workload, fmt.Sprintf(format, int(size)), unit); f != nil {
			l.Points = append(l.Points, chart.Point{X: size, Y: f.Median})
		}
	}
	return l
}

// level returns the median of a figure as a horizontal line.
func (r *Report) level(workload, name, unit, figure string, from, to float64) chart.Line {
	l := chart.Line{Name: name, Baseline: true}
	if f := r.figure(workload, figure, unit); f != nil {
		l.Points = []chart.Point{{X: from, Y: f.Median}, {X: to, Y: f.Median}}
	}
	return l
}

// slowdown returns a line through the medians of an operation, divided by the median that
// was measured while the other groups were empty.
func (r *Report) slowdown(what string) chart.Line {
	l := r.over("waiting", what, "ms", what+", %d in 1000 groups", []float64{1000, 10_000, 100_000})
	alone := r.figure("waiting", what+", 0 in 1000 groups", "ms")
	if alone == nil {
		return chart.Line{}
	}
	for i := range l.Points {
		l.Points[i].Y /= alone.Median
	}
	return l
}
