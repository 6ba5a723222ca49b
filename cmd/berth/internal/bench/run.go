package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// Workload is one thing to measure.
type Workload struct {
	Name string
	// Shows says in a line what its figures tell.
	Shows string
	// Anywhere is set for what makes sense against a cluster that has other
	// work: it asks for no more than a small part of one.
	Anywhere bool
	// Run measures in a world and adds figures to its run.
	Run func(ctx context.Context, w *World) error
	// Worlds, if set, replaces Run: it makes its worlds itself.
	Worlds func(ctx context.Context, r *Run) error
}

// Workloads are all there are, in the order in which they run.
var Workloads = []Workload{
	rawEtcd, upsert, batches, latency, freedToLeased, waiting, bursts, largeFleet, idle, heartbeats, trace,
}

// Options of a benchmark.
type Options struct {
	// Window is how long one phase of steady load lasts, Repeats how often each
	// is done.
	Window  time.Duration
	Repeats int
	// Scale multiplies the sizes of workloads: 1 is what their targets are about.
	Scale float64
	// Replicas of each service.
	Replicas int
	// Idle is how long an idle cluster is looked at, Trace the directory of a trace
	// to play; none if empty.
	Idle  time.Duration
	Trace string
	// Profiles is a directory to keep profiles of services in; none if empty.
	Profiles string
	// Place makes the world for a workload.
	Place Place
	// Status is told of the progress.
	Status io.Writer
}

// Result is what one workload showed.
type Result struct {
	Workload string   `json:"workload"`
	Shows    string   `json:"shows"`
	Figures  []Figure `json:"figures"`
	Costs    []Cost   `json:"costs"`
	Audits   []Audit  `json:"audits"`
	Notes    []string `json:"notes,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Error is why the workload did not come to its end.
	Error string `json:"error,omitempty"`
}

// Run is one workload under way.
type Run struct {
	Options
	Result
	began time.Time
	count atomic.Int64
	setup setup
}

// setup is what a world has beyond the usual, where it is made for the workload.
type setup struct {
	// members of etcd; 1 unless given.
	members int
	// seed fills etcd before the services start; see [fleet.Config].
	seed seed
}

// run carries a workload out.
func run(ctx context.Context, w Workload, o Options) (*Result, error) {
	r := &Run{Options: o, Result: Result{Workload: w.Name, Shows: w.Shows, Figures: []Figure{}, Costs: []Cost{}, Audits: []Audit{}}, began: time.Now()}
	measure := w.Worlds
	if measure == nil {
		measure = func(ctx context.Context, r *Run) error { return r.World(ctx, setup{}, w.Run) }
	}
	err := measure(ctx, r)
	r.Seconds = time.Since(r.began).Seconds()
	if err != nil {
		err = fmt.Errorf("%s: %w", w.Name, err)
		r.Result.Error, _, _ = strings.Cut(err.Error(), "\n") // what came of it stands below
	}
	return &r.Result, err
}

// Say tells whoever waits how far the workload is.
func (r *Run) Say(format string, args ...any) {
	fmt.Fprintf(r.Status, "%7.1fs  %-15s  %s\n", time.Since(r.began).Seconds(), r.Workload, fmt.Sprintf(format, args...))
}

// Note keeps a sentence for the report.
func (r *Run) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Sized is a size of the workload as scaled, and at least least.
func (r *Run) Sized(n, least int) int { return max(least, int(float64(n)*r.Scale)) }

// Add adds a figure. Its baseline, if it names one, was added before it. Targets
// are about workloads of full size, and left out of others.
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
		f.Target.judge(&f)
	}
	r.Figures = append(r.Figures, f)
}

// next numbers what the run makes, so that no two are the same.
func (r *Run) next() int64 { return r.count.Add(1) }

// stage is the name of a stage that is not there yet.
func (r *Run) stage() string { return fmt.Sprintf("s-%06d", r.next()) }
