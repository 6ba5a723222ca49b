package restore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// Commands are `berth backup` and `berth restore`.
func Commands() []*cobra.Command { return []*cobra.Command{backupCommand(), restoreCommand()} }

func backupCommand() *cobra.Command {
	config := process.Common{Etcd: []string{"127.0.0.1:2379"}}
	var silence time.Duration
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all that etcd holds to a file",
		Long: `Write all that etcd holds to a file, as of one revision: the same that
'etcdctl snapshot save' writes. Everything goes on meanwhile.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := positive(silence); err != nil {
				return err
			}
			_, security, err := config.TLS()
			if err != nil {
				return err
			}
			s, err := store.Dial(store.DialConfig{Endpoints: config.Etcd, TLS: config.EtcdTLS(security)})
			if err != nil {
				return err
			}
			defer s.Close()
			size, err := Backup(cmd.Context(), s, args[0], silence)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n", args[0], size)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&config.Etcd, "etcd-endpoints", config.Etcd, "etcd endpoints, host:port; https://host:port for TLS")
	flags.DurationVar(&silence, "timeout", 10*time.Second, "how long etcd may send nothing: before its first answer, and between two parts of it")
	flags.StringVar(&config.TLSCert, "tls-cert", "", "certificate file (PEM) to call etcd with")
	flags.StringVar(&config.TLSKey, "tls-key", "", "key file (PEM) of the certificate")
	flags.StringVar(&config.TLSCA, "tls-ca", "", "file (PEM) of the authorities that etcd must be signed by")
	return cmd
}

func restoreCommand() *cobra.Command {
	m := Member{Name: "default", Cluster: "default=http://localhost:2380", Token: "etcd-cluster"}
	var file string
	var raise Raise
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "restore --snapshot FILE --data-dir DIR",
		Short: "Make the data directory of a member of etcd from a backup",
		Long: `Make the data directory of a member of etcd from a backup, as Berth needs it:
revisions are raised above all that agents have seen, nobody leads, and the
registry waits to be told that it is ready where it waits at all.

Stop every gateway and service first; agents and workers run on. Do this once
for each member, from the same file and with the same --at, then start etcd with
the same names.

The history goes on at a revision that stands for the moment of the restore, a
million for every second since 2020: above all that was written after any restore
before this one. So the clock must not be behind that of an earlier restore.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := positive(timeout); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			made, err := Restore(ctx, file, m, raise)
			if err != nil && ctx.Err() != nil && cmd.Context().Err() == nil {
				err = fault.New(fault.Unavailable, fault.ReasonUnavailable, "%s was not restored within %v, and nothing is left of it: give a longer --timeout", file, timeout)
			}
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: member %s, from revision %d on, with the clusters: %s\n",
					m.DataDir, m.Name, made.Revision, strings.Join(made.Clusters, ", "))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "snapshot", "", "the backup, of 'berth backup' or 'etcdctl snapshot save'")
	flags.DurationVar(&timeout, "timeout", 10*time.Minute, "how long the whole may take")
	flags.StringVar(&m.DataDir, "data-dir", "", "directory to make; etcd's --data-dir")
	flags.StringVar(&m.Name, "name", m.Name, "name of the member; etcd's --name")
	flags.StringVar(&m.Cluster, "initial-cluster", m.Cluster, "all members, name=URL; etcd's --initial-cluster")
	flags.StringVar(&m.Token, "initial-cluster-token", m.Token, "etcd's --initial-cluster-token")
	flags.TimeVar(&raise.At, "at", time.Time{}, []string{time.RFC3339}, "moment of the restore, as 2006-01-02T15:04:05Z: the same for all members; now, for a single one")
	flags.Uint64Var(&raise.By, "bump-revision", 0, "raise the snapshot's revision by this in place of --at: more than any history since the backup has written, those of other restores included")
	for _, name := range []string{"snapshot", "data-dir"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
	return cmd
}

func positive(timeout time.Duration) error {
	if timeout <= 0 {
		return fault.BadField(fault.ReasonInvalid, "--timeout", "must be longer than 0, got %v", timeout)
	}
	return nil
}
