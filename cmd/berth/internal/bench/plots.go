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

// plot draws what the report has into a directory.
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
		return fault.New(fault.Invalid, fault.ReasonInvalid, "the plots cannot be written to %s", dir).Because(err)
	}
	return nil
}

// charts are the plots by their files, of those workloads that the report has.
func (r *Report) charts() map[string]chart.Chart {
	charts := map[string]chart.Chart{}
	for file, c := range map[string]chart.Chart{
		"latency.svg": {
			Title: "How long it takes: share of all that was done within",
			X:     chart.Axis{Label: "milliseconds", Log: true}, Y: chart.Axis{Label: "percent", To: 100},
			Lines: present(
				r.distribution("latency", "batches of 8, 100/s", false), r.distribution("latency", "4 puts in a row, 100/s", true),
				r.distribution("freed-to-leased", "freed to leased", false), r.distribution("freed-to-leased", "2 puts in a row, seen", true)),
		},
		"batch-size.svg": {
			Title: "Workers started a second, by the size of their batches",
			X:     chart.Axis{Label: "workers a batch", Log: true}, Y: chart.Axis{Label: "workers a second", Log: true},
			Lines: present(
				r.over("batches", "Berth", "/s", "workers, %d a batch", 1, []float64{1, 10, 100, 1000}),
				r.level("batches", "puts to etcd by as many callers", "/s", puts64, 1, 1000)),
		},
		"fleet-size.svg": {
			Title: "What the inventory takes, by the size of the fleet",
			X:     chart.Axis{Label: "executors", Log: true}, Y: chart.Axis{Label: "milliseconds, median", Log: true},
			Lines: present(
				r.over("fleet", "fit a batch of 100, in the core", "ms", "fit 100, %d executors", 1, fleetSizes),
				r.level("fleet", "as with 1,000 executors: fit", "ms", "fit 100, 1000 executors", 1000, fleetSize),
				r.over("fleet", "usage call, by the gateway", "ms", "usage, %d executors", 1, fleetSizes),
				r.level("fleet", "as with 1,000 executors: usage", "ms", "usage, 1000 executors", 1000, fleetSize)),
		},
		"waiting.svg": {
			Title: "What those who wait cost others, in 1,000 groups",
			X:     chart.Axis{Label: "reservations that wait in other groups", Log: true}, Y: chart.Axis{Label: "times as long as with none", To: 2},
			Lines: present(
				chart.Line{Name: "with none", Baseline: true, Points: []chart.Point{{X: 1000, Y: 1}, {X: 100_000, Y: 1}}},
				r.besideMany("upsert"), r.besideMany("grant"), r.besideMany("explain"), r.besideMany("pending view")),
		},
	} {
		if slices.ContainsFunc(c.Lines, func(l chart.Line) bool { return !l.Baseline }) {
			charts[file] = c
		}
	}
	return charts
}

var fleetSizes = []float64{1000, 10_000, fleetSize}

// figure finds one by its name; nil if the report has it not.
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

// present are the lines that have points.
func present(lines ...chart.Line) []chart.Line {
	return slices.DeleteFunc(lines, func(l chart.Line) bool { return len(l.Points) == 0 })
}

// distribution is how many percent of the samples are at most so large.
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

// over is the medians of figures that differ by a number in their names.
func (r *Report) over(workload, name, unit, format string, by float64, sizes []float64) chart.Line {
	l := chart.Line{Name: name, Marked: true}
	for _, size := range sizes {
		if f := r.figure(workload, fmt.Sprintf(format, int(size)), unit); f != nil {
			l.Points = append(l.Points, chart.Point{X: size, Y: f.Median * by})
		}
	}
	return l
}

// level is the median of one figure, from one end to the other.
func (r *Report) level(workload, name, unit, figure string, from, to float64) chart.Line {
	l := chart.Line{Name: name, Baseline: true}
	if f := r.figure(workload, figure, unit); f != nil {
		l.Points = []chart.Point{{X: from, Y: f.Median}, {X: to, Y: f.Median}}
	}
	return l
}

// besideMany is how many times as long something took while others waited.
func (r *Report) besideMany(what string) chart.Line {
	l := chart.Line{Name: what, Marked: true}
	if alone := r.figure("waiting", what+", 0 in 1000 groups", "ms"); alone != nil {
		over := r.over("waiting", what, "ms", what+", %d in 1000 groups", 1/alone.Median, []float64{1000, 10_000, 100_000})
		l.Points = over.Points
	}
	return l
}
