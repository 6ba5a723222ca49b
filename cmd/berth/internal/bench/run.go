package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/process"
)

// Workload is a named set of measurements.
type Workload struct {
	Name string
	// Shows describes the workload in one line.
	Shows string
	// Anywhere is set for workloads that may run in a cluster with other work, because they
	// use only a small part of the cluster.
	Anywhere bool
	// Run measures the workload and adds figures to r.
	Run func(ctx context.Context, r *Run) error
}

// inWorld returns a workload's Run that measures in one world.
func inWorld(do func(ctx context.Context, w *World) error) func(ctx context.Context, r *Run) error {
	return func(ctx context.Context, r *Run) error { return r.World(ctx, fleet.Config{}, do) }
}

// Workloads lists all workloads in the order in which they run.
var Workloads = []Workload{
	rawEtcd, upsert, batches, latency, freedToLeased, waiting, bursts, largeFleet, idle, heartbeats, encrypted, tenants,
	trace,
}

// Options are the options of a benchmark.
type Options struct {
	// Window is the duration of one phase of steady load. Repeats is the number of times
	// that each phase is measured.
	Window  time.Duration
	Repeats int
	// Scale multiplies the sizes of workloads. Targets apply only to 1.
	Scale float64
	// Replicas is the number of replicas of each service.
	Replicas int
	// Idle is the duration of the measurement of an idle cluster.
	Idle time.Duration
	// Trace is the directory of a trace to replay. If it is empty, the workload "trace" is
	// skipped.
	Trace string
	// JSON is the file to which the report with every sample is written, if not empty.
	JSON string
	// Dir is the directory for the data of etcd; default the directory for temporary files.
	Dir string
	// Profiles is the directory for processor profiles of the services. If it is empty, the
	// services are not profiled.
	Profiles string
	// Cluster is the running cluster to measure. If it has no addresses, each world starts a
	// separate cluster.
	Cluster running.Cluster
	// Status is the writer for progress messages.
	Status io.Writer
}

// outputFlags adds the flags that name files and directories.
func (o *Options) outputFlags(set *pflag.FlagSet) {
	set.StringVar(&o.JSON, "json", "", "file to write every sample to, as JSON")
	set.StringVar(&o.Dir, "dir", "", "directory for the data of etcd (default: the directory for temporary files)")
	set.StringVar(&o.Profiles, "profiles", "",
		"directory for processor profiles of the services; profiling changes the results a little")
}

// Result has the measurements of one workload.
type Result struct {
	Workload string   `json:"workload"`
	Shows    string   `json:"shows"`
	Figures  []Figure `json:"figures"`
	Costs    []Cost   `json:"costs"`
	Audits   []Audit  `json:"audits"`
	Notes    []string `json:"notes,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Error is the first line of the error with which the workload failed.
	Error string `json:"error,omitempty"`
}

// Run is a workload in progress.
type Run struct {
	Options
	Result
	began time.Time
	count atomic.Int64
}

// runAll runs workloads one after the other. After each workload it prints the result to out
// and saves the report. If a workload fails, the next workloads still run.
func runAll(ctx context.Context, workloads []Workload, o Options, out io.Writer) error {
	for flag, dir := range map[string]string{"--dir": o.Dir, "--profiles": o.Profiles} {
		if err := process.MakeDir(flag, cmp.Or(dir, "."), 0o750); err != nil {
			return err
		}
	}
	report := newReport(o)
	var failed error
	for _, w := range workloads {
		result, err := run(ctx, w, o)
		report.Results = append(report.Results, result)
		failed = errors.Join(failed, err)
		if err := errors.Join(result.write(out), replay.Save(o.JSON, report)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return cmp.Or(failed, report.violations())
}

// run runs a workload.
func run(ctx context.Context, w Workload, o Options) (*Result, error) {
	r := &Run{Options: o, Result: Result{Workload: w.Name, Shows: w.Shows, Figures: []Figure{}, Costs: []Cost{},
		Audits: []Audit{}}, began: time.Now()}
	err := w.Run(ctx, r)
	r.Seconds = time.Since(r.began).Seconds()
	if err != nil {
		err = fmt.Errorf("%s: %w", w.Name, err)
		// The later lines are errors of the cleanup after the first error.
		r.Result.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	return &r.Result, err
}

// Say writes a progress message.
func (r *Run) Say(format string, args ...any) {
	fmt.Fprintf(r.Status, "%7.1fs  %-15s  %s\n", time.Since(r.began).Seconds(), r.Workload, fmt.Sprintf(format, args...))
}

// Note adds a sentence to the report.
func (r *Run) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Sized returns n multiplied by the scale, but not less than least.
func (r *Run) Sized(n, least int) int { return max(least, int(float64(n)*r.Scale)) }

// Add adds a figure. If the figure names a baseline, add the baseline before. Add removes
// the target if the sizes of the workload are scaled.
func (r *Run) Add(f Figure) {
	f.Summary = Summarize(f.Samples)
	for _, base := range r.Figures {
		if base.Name == f.Against && base.Unit == f.Unit && base.Median > 0 {
			f.Ratio = f.Median / base.Median
		}
	}
	if r.Scale != 1 {
		f.Target = nil
	}
	if f.Target != nil {
		f.Target.evaluate(&f)
	}
	r.Figures = append(r.Figures, f)
}

// next returns a new number at every call.
func (r *Run) next() int64 { return r.count.Add(1) }

// stage returns the name of a new stage.
func (r *Run) stage() string { return fmt.Sprintf("s-%06d", r.next()) }
