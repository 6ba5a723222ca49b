package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/running"
)

// Workload is a named set of measurements.
type Workload struct {
	Name string
	// Shows describes the workload in one line.
	Shows string
	// Anywhere is set for workloads that use only a small part of a cluster, and so may run
	// in a cluster that has other work.
	Anywhere bool
	// Run measures and adds figures to its run.
	Run func(ctx context.Context, r *Run) error
}

// inWorld returns a workload's Run that measures in one world.
func inWorld(do func(ctx context.Context, w *World) error) func(ctx context.Context, r *Run) error {
	return func(ctx context.Context, r *Run) error { return r.World(ctx, fleet.Config{}, do) }
}

// Workloads are all workloads, in the order in which they run.
var Workloads = []Workload{
	rawEtcd, upsert, batches, latency, freedToLeased, waiting, bursts, largeFleet, idle, heartbeats, trace,
}

// Options of a benchmark.
type Options struct {
	// Window is the duration of one phase of steady load, Repeats the number of its runs.
	Window  time.Duration
	Repeats int
	// Scale multiplies the sizes of workloads. Targets apply only to 1.
	Scale float64
	// Replicas of each service.
	Replicas int
	// Idle is the duration of the measurement of an idle cluster, Trace the directory of a
	// trace to replay; none if empty.
	Idle  time.Duration
	Trace string
	// JSON is the file that gets the report with every sample; none if empty.
	JSON string
	// Dir is the directory for the data of etcd; default that for temporary files.
	Dir string
	// Profiles is a directory for processor profiles of the services; none if empty.
	Profiles string
	// Cluster is the running cluster to measure. Without addresses, each world starts a
	// Berth of its own.
	Cluster running.Cluster
	// Status gets the progress.
	Status io.Writer
}

// outputFlags adds the flags that name files and directories.
func (o *Options) outputFlags(set *pflag.FlagSet) {
	set.StringVar(&o.JSON, "json", "", "file to write every sample to, as JSON")
	set.StringVar(&o.Dir, "dir", "", "directory for the data of etcd (default: the directory for temporary files)")
	set.StringVar(&o.Profiles, "profiles", "",
		"directory for processor profiles of the services; profiling changes the results a little")
}

// Result is what one workload measured.
type Result struct {
	Workload string   `json:"workload"`
	Shows    string   `json:"shows"`
	Figures  []Figure `json:"figures"`
	Costs    []Cost   `json:"costs"`
	Audits   []Audit  `json:"audits"`
	Notes    []string `json:"notes,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Error is why the workload failed.
	Error string `json:"error,omitempty"`
}

// Run is a workload in progress.
type Run struct {
	Options
	Result
	began time.Time
	count atomic.Int64
}

// runAll runs workloads one after the other. It prints the result of each to out and
// saves the report after each. If a workload fails, the next ones still run.
func runAll(ctx context.Context, workloads []Workload, o Options, out io.Writer) error {
	for _, dir := range []string{o.Dir, o.Profiles} {
		if err := os.MkdirAll(cmp.Or(dir, "."), 0o750); err != nil {
			return fault.New(fault.Invalid, fault.ReasonInvalid, "cannot create directory %s", dir).Because(err)
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
		r.Result.Error, _, _ = strings.Cut(err.Error(), "\n") // later lines are consequences
	}
	return &r.Result, err
}

// Say reports progress.
func (r *Run) Say(format string, args ...any) {
	fmt.Fprintf(r.Status, "%7.1fs  %-15s  %s\n", time.Since(r.began).Seconds(), r.Workload, fmt.Sprintf(format, args...))
}

// Note adds a sentence to the report.
func (r *Run) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Sized returns n multiplied by the scale, or least if that is more.
func (r *Run) Sized(n, least int) int { return max(least, int(float64(n)*r.Scale)) }

// Add adds a figure. If it names a baseline, that must have been added before. A figure
// of a scaled workload has no target.
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

// next returns a number that no earlier call has returned.
func (r *Run) next() int64 { return r.count.Add(1) }

// stage returns the name of a new stage.
func (r *Run) stage() string { return fmt.Sprintf("s-%06d", r.next()) }
