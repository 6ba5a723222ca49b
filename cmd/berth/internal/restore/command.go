package restore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/store"
)

// Commands returns `berth backup` and `berth restore`.
func Commands() []*cobra.Command { return []*cobra.Command{backupCommand(), restoreCommand()} }

func backupCommand() *cobra.Command {
	etcd := running.Etcd{Endpoints: []string{"127.0.0.1:2379"}}
	var silence time.Duration
	var output string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the data of etcd to a file",
		Long: `Write the data of etcd as of one revision to a file, in the format of
'etcdctl snapshot save'. The cluster keeps running during the backup. With '-'
as FILE, write the data to standard output, and the result to standard error.`,
		Example: `  berth backup berth.db --etcd-endpoints etcd-0:2379
  berth backup - --etcd-endpoints etcd-0:2379 | gzip > berth.db.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := positive(silence); err != nil {
				return err
			}
			config, err := etcd.Config()
			if err != nil {
				return err
			}
			s, err := store.Dial(config)
			if err != nil {
				return err
			}
			defer s.Close()
			write, to := func() (int64, error) { return Backup(cmd.Context(), s, args[0], silence) }, cmd.OutOrStdout()
			if args[0] == "-" {
				out := to
				if file, is := out.(*os.File); is && term.IsTerminal(int(file.Fd())) {
					return fault.BadField(fault.ReasonInvalid, "FILE", "is '-', but standard output is a terminal: redirect it")
				}
				write = func() (int64, error) { return Stream(cmd.Context(), s, out, "standard output", silence) }
				to = cmd.ErrOrStderr()
			}
			size, err := write()
			if err != nil {
				return etcd.Refused(err, "read a snapshot, which requires the role root")
			}
			result := struct {
				File  string `json:"file"`
				Bytes int64  `json:"bytes"`
			}{args[0], size}
			return cli.WriteValue(to, output, result, fmt.Sprintf("%s: %d bytes\n", args[0], size), args[0]+"\n")
		},
	}
	flags := cmd.Flags()
	etcd.Flags(flags, "etcd endpoints, host:port; https://host:port for TLS")
	flags.DurationVar(&silence, "timeout", 10*time.Second, "maximum time without data from etcd")
	cli.OutputFlag(flags, &output)
	return cmd
}

func restoreCommand() *cobra.Command {
	m := Member{Name: "default", Cluster: "default=http://localhost:2380", Token: "etcd-cluster"}
	var file, output string
	var raise Raise
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "restore --snapshot FILE --data-dir DIR",
		Short: "Create the data directory of a member of etcd from a backup",
		Long: `Create the data directory of a member of etcd from a backup. In the restored
data, revisions continue above all revisions that agents have seen, no service
has a leader, and the registry is not ready. With 'readiness: signal' the
registry then waits for 'berth mark-ready'.

Stop every gateway and service first. Agents and workers keep running. Restore
each member from the same file and with the same --at. Then start etcd with the
same member names.

The history continues at a revision that encodes the moment of the restore: one
million revisions for every second since 2020. That revision is above all
revisions written after earlier restores, unless the clock of this host is
behind the clock of an earlier restore.`,
		Example: `  berth restore --snapshot berth.db --data-dir /var/lib/etcd
  berth restore --snapshot berth.db --data-dir /var/lib/etcd --name etcd-0 --at 2026-01-02T15:04:05Z \
    --initial-cluster etcd-0=http://etcd-0:2380,etcd-1=http://etcd-1:2380`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := positive(timeout); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			made, err := Restore(ctx, file, m, raise)
			if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
				err = fault.New(fault.Unavailable, fault.ReasonUnavailable,
					"%s was not restored within %v; nothing was written, give a longer --timeout", file, timeout)
			}
			if err != nil {
				return err
			}
			result := struct {
				DataDir  string   `json:"dataDir"`
				Member   string   `json:"member"`
				Revision int64    `json:"revision"`
				Clusters []string `json:"clusters"`
			}{m.DataDir, m.Name, made.Revision, append([]string{}, made.Clusters...)}
			text := fmt.Sprintf("%s: member %s, from revision %d on, with the clusters: %s\n", m.DataDir, m.Name,
				made.Revision, strings.Join(made.Clusters, ", "))
			return cli.WriteValue(cmd.OutOrStdout(), output, result, text, m.DataDir+"\n")
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "snapshot", "", "backup file, of 'berth backup' or 'etcdctl snapshot save'")
	flags.DurationVar(&timeout, "timeout", 10*time.Minute, "maximum duration")
	flags.StringVar(&m.DataDir, "data-dir", "", "directory to create; etcd's --data-dir")
	flags.StringVar(&m.Name, "name", m.Name, "name of the member; etcd's --name")
	flags.StringVar(&m.Cluster, "initial-cluster", m.Cluster, "all members, name=URL; etcd's --initial-cluster")
	flags.StringVar(&m.Token, "initial-cluster-token", m.Token, "etcd's --initial-cluster-token")
	flags.TimeVar(&raise.At, "at", time.Time{}, []string{time.RFC3339},
		"moment of the restore, as 2006-01-02T15:04:05Z, the same for all members (default for a single member: now)")
	flags.Uint64Var(&raise.By, "bump-revision", 0,
		"number by which to raise the snapshot's revision, instead of --at; must exceed the number of revisions written since the backup, including those after other restores")
	cli.OutputFlag(flags, &output)
	_ = cmd.MarkFlagRequired("snapshot") // fails only for an unknown flag
	_ = cmd.MarkFlagRequired("data-dir")
	return cmd
}

func positive(timeout time.Duration) error {
	if timeout <= 0 {
		return fault.BadField(fault.ReasonInvalid, "--timeout", "must be longer than 0, got %v", timeout)
	}
	return nil
}
