package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
)

// flags are the flags of `berth bench`.
type flags struct {
	Options
	only []string
}

const help = `Measure a Berth cluster with named workloads. Each figure has a baseline from
the same run.

By default each workload starts a separate cluster on this machine and removes
the cluster at the end: etcd with fsync on, the services, a gateway and
simulated executors, each as a separate process. To measure a running cluster
instead, set --gateway, --agents-gateway and --etcd-endpoints. Only workloads
that use a small part of a cluster then run. At the end the bench cancels the
reservations of the workload and stops its executors, which become LOST.

The bench audits every revision of etcd that a workload has written. The exit
code is 0 if the audit finds no violation; a missed target does not change it.`

// Command returns the command `berth bench`.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure a Berth cluster, each figure with a baseline from the same run",
		Long:    help + "\n\n" + list(),
		Example: "  berth bench --only upsert,latency --json report.json\n  berth bench --only idle --idle 10m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			chosen, err := f.choose()
			if err != nil {
				return err
			}
			if len(f.Cluster.Gateways) > 0 {
				if err := f.Cluster.Reach(cmd.Context()); err != nil {
					return err
				}
			}
			f.Status = cmd.ErrOrStderr()
			return runAll(cmd.Context(), chosen, f.Options, cmd.OutOrStdout())
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&f.only, "only", nil, "workloads to run (default: all)")
	set.DurationVar(&f.Window, "window", 2*time.Second, "duration of one phase of steady load")
	set.DurationVar(&f.Idle, "idle", time.Minute, "duration of the measurement of an idle cluster")
	set.StringVar(&f.Trace, "trace", "", "directory of a trace to replay; see berth replay")
	set.IntVar(&f.Repeats, "repeat", 3, "number of runs of each phase of steady load")
	set.IntVar(&f.Replicas, "replicas", 1, "replicas of each service")
	set.Float64Var(&f.Scale, "scale", 1, "factor for the sizes of workloads; targets apply only to 1")
	f.outputFlags(set)
	f.Cluster.Flags(set)
	cmd.AddCommand(failoverCommand(), docsCommand())
	return cmd
}

// list describes the workloads for the help text.
func list() string {
	text := "Workloads (* marks workloads that can also run in a running cluster):"
	for _, w := range Workloads {
		mark := ' '
		if w.Anywhere {
			mark = '*'
		}
		text += fmt.Sprintf("\n  %-15s %c %s", w.Name, mark, w.Shows)
	}
	return text
}

func (f *flags) check() error {
	switch {
	case f.Window <= 0:
		return fault.BadField(fault.ReasonInvalid, "--window", "must be longer than 0, got %v", f.Window)
	case f.Idle < lookEvery*3:
		return fault.BadField(fault.ReasonInvalid, "--idle", "must be at least %v, got %v", lookEvery*3, f.Idle)
	case f.Repeats < 1:
		return fault.BadField(fault.ReasonInvalid, "--repeat", "must be at least 1, got %d", f.Repeats)
	case f.Replicas < 1:
		return fault.BadField(fault.ReasonInvalid, "--replicas", "must be at least 1, got %d", f.Replicas)
	case f.Scale <= 0:
		return fault.BadField(fault.ReasonInvalid, "--scale", "must be greater than 0, got %g", f.Scale)
	case len(f.Cluster.Gateways) > 0 && f.Profiles != "":
		return fault.BadField(fault.ReasonInvalid, "--profiles", "cannot be used with --gateway")
	}
	return f.Cluster.Check()
}

// choose returns the workloads to run.
func (f *flags) choose() ([]Workload, error) {
	inRunning := len(f.Cluster.Gateways) > 0
	var err error
	if f.only, err = process.CheckList("only", "", f.only); err != nil {
		return nil, err
	}
	for _, name := range f.only {
		i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == name })
		switch {
		case i < 0:
			return nil, fault.BadField(fault.ReasonInvalid, "--only", "there is no workload %q; see berth bench --help", name)
		case inRunning && !Workloads[i].Anywhere:
			return nil, fault.BadField(fault.ReasonInvalid, "--only", "workload %s cannot run in a running cluster", name)
		}
	}
	return slices.DeleteFunc(slices.Clone(Workloads), func(w Workload) bool {
		return len(f.only) > 0 && !slices.Contains(f.only, w.Name) || inRunning && !w.Anywhere
	}), nil
}
