package bench

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/running"
)

// flags of the command.
type flags struct {
	Options
	running.Cluster
	only      []string
	json, dir string
}

const help = `Measure a Berth: named workloads, each beside a baseline from the same run.

Unless --gateway, --agents-gateway and --etcd-endpoints name a running cluster,
each workload gets a Berth of its own on this machine, removed at the end: etcd
with fsync on, the services, a gateway and simulated executors, each a process
of its own. In a running one, only those workloads run that ask for little; what
they asked for is cancelled at the end, and their executors become LOST.

Every revision of etcd that a workload has written is audited. Exit code 0 says
that no promise was broken. A target that was missed fails nothing.`

// Command is `berth bench`.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a Berth, each figure beside a baseline from the same run",
		Long:  help + "\n\n" + list(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringSliceVar(&f.only, "only", nil, "workloads to run; all unless given")
	set.StringVar(&f.json, "json", "", "file to write every sample to, as JSON")
	set.StringVar(&f.dir, "dir", "", "directory below which etcd keeps its data; that for temporary files unless given")
	set.DurationVar(&f.Window, "window", 2*time.Second, "how long one phase of steady load lasts")
	set.DurationVar(&f.Idle, "idle", time.Minute, "how long an idle cluster is looked at")
	set.StringVar(&f.Trace, "trace", "", "directory of a trace to play, as berth replay takes it")
	set.IntVar(&f.Repeats, "repeat", 3, "how often each phase of steady load is done")
	set.IntVar(&f.Replicas, "replicas", 1, "replicas of each service")
	set.Float64Var(&f.Scale, "scale", 1, "what the sizes of workloads are multiplied by; targets are about 1")
	set.StringVar(&f.Profiles, "profiles", "", "directory to keep processor profiles of the services in; taking them costs some of what is measured")
	f.Flags(set)
	cmd.AddCommand(failoverCommand(), docsCommand())
	return cmd
}

// list names the workloads for the help.
func list() string {
	var b strings.Builder
	b.WriteString("Workloads; * marks those for a running cluster too:\n")
	for _, w := range Workloads {
		mark := ' '
		if w.Anywhere {
			mark = '*'
		}
		b.WriteString("  " + w.Name + strings.Repeat(" ", max(1, 16-len(w.Name))) + string(mark) + " " + w.Shows + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func (f *flags) check() error {
	switch {
	case f.Window <= 0:
		return fault.BadField(fault.ReasonInvalid, "--window", "has to be longer than 0")
	case f.Idle < lookEvery*3:
		return fault.BadField(fault.ReasonInvalid, "--idle", "has to be at least %v", lookEvery*3)
	case f.Repeats < 1:
		return fault.BadField(fault.ReasonInvalid, "--repeat", "has to be at least 1")
	case f.Replicas < 1:
		return fault.BadField(fault.ReasonInvalid, "--replicas", "has to be at least 1")
	case f.Scale <= 0:
		return fault.BadField(fault.ReasonInvalid, "--scale", "has to be more than 0")
	case len(f.Gateways) > 0 && f.Profiles != "":
		return fault.BadField(fault.ReasonInvalid, "--profiles", "works only on services that this command starts")
	}
	return f.Check()
}

// choose answers the workloads to run.
func (f *flags) choose() ([]Workload, error) {
	var chosen []Workload
	elsewhere := len(f.Gateways) > 0
	for _, name := range f.only {
		if !slices.ContainsFunc(Workloads, func(w Workload) bool { return w.Name == name }) {
			return nil, fault.BadField(fault.ReasonInvalid, "--only", "there is no workload %q; see berth bench --help", name)
		}
	}
	for _, w := range Workloads {
		asked := slices.Contains(f.only, w.Name)
		switch {
		case asked && elsewhere && !w.Anywhere:
			return nil, fault.BadField(fault.ReasonInvalid, "--only", "%s is not for a cluster that has other work", w.Name)
		case asked, len(f.only) == 0 && (w.Anywhere || !elsewhere):
			chosen = append(chosen, w)
		}
	}
	return chosen, nil
}

func (f *flags) run(ctx context.Context, out, status io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	chosen, err := f.choose()
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	f.Place = ownPlace(binary, f.dir, func(string) error { return nil }, func(*fleet.Config) error { return nil })
	if len(f.Gateways) > 0 {
		if err := f.Reach(ctx); err != nil {
			return err
		}
		f.Place = runningPlace(binary, f.Cluster)
	}
	for _, dir := range []string{f.dir, f.Profiles} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fault.New(fault.Invalid, fault.ReasonInvalid, "directory %s cannot be made", dir).Because(err)
		}
	}
	f.Status = status
	report := newReport(f.Options)
	var failed error // the other workloads are measured all the same
	for _, w := range chosen {
		result, err := run(ctx, w, f.Options)
		report.Results = append(report.Results, result)
		failed = errors.Join(failed, err)
		if err := errors.Join(result.write(out), report.save(f.json)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return cmp.Or(failed, report.violations())
}

// save writes the report, if a file is named.
func (r *Report) save(file string) error {
	if file == "" {
		return nil
	}
	return replay.Save(file, r)
}
