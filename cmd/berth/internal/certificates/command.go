// Package certificates issues certificates from the command line. It is `berth certs`.
package certificates

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
)

// The defaults of --valid.
const (
	authorityValid = 10 * 365 * 24 * time.Hour
	valid          = 90 * 24 * time.Hour
)

// servers has the roles of processes that other processes call.
const servers = identity.Gateway | identity.Service | identity.Agent

// localhost is the default of --hosts for servers.
var localhost = []string{"localhost", "127.0.0.1", "::1"}

// issued is the result of a command: a certificate, and the key of its holder.
type issued struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// Identity is empty for an authority.
	Identity string    `json:"identity,omitempty"`
	Expires  time.Time `json:"expires"`
}

// write prints the result. what describes the certificate.
func (i issued) write(cmd *cobra.Command, output, what string) error {
	i.Expires = i.Expires.UTC()
	text := fmt.Sprintf("%s: %s, valid until %s\n%s: its key; keep it secret\n", i.Certificate, what,
		i.Expires.Format(time.RFC3339), i.Key)
	return cli.WriteValue(cmd.OutOrStdout(), output, i, text, i.Certificate+"\n")
}

// Command returns `berth certs`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Issue certificates, for trials and small clusters",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(initCommand(), issueCommand())
	return cmd
}

func initCommand() *cobra.Command {
	var dir, output string
	lasts := authorityValid
	cmd := &cobra.Command{
		Use:   "init --dir DIR",
		Short: "Create a certificate authority",
		Long: `Create a certificate authority: its certificate ca.crt and its key ca.key in a
directory. Every process needs ca.crt. Only 'berth certs issue' needs ca.key. The holder
of the key can issue a certificate for any role, so keep it off the hosts of the cluster.
The command does not replace an authority.

Create another authority for etcd. etcd accepts every certificate of its authority, also
the certificate of an agent.`,
		Example: "  berth certs init --dir certs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := positive(lasts); err != nil {
				return err
			}
			authority, err := certs.Init(dir, lasts)
			if err != nil {
				return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot create the authority: %v", err).Because(err)
			}
			result := issued{Certificate: filepath.Join(dir, certs.AuthorityCert), Key: filepath.Join(dir, certs.AuthorityKey),
				Expires: authority.Expires()}
			return result.write(cmd, output, "certificate authority")
		},
	}
	flags(cmd, &dir, &output, &lasts)
	return cmd
}

func issueCommand() *cobra.Command {
	var dir, output string
	var hosts []string
	cluster, lasts := "default", valid
	cmd := &cobra.Command{
		Use:   "issue --dir DIR ROLE NAME",
		Short: "Issue a certificate for a process or a person",
		Long: `Issue a certificate and write it with a new key to DIR/ROLE-NAME.crt and
DIR/ROLE-NAME.key. The file names have '+' instead of '*'. It replaces an earlier
certificate with the same name.

ROLE is the role of the holder:
  gateway     a gateway
  service     a replica of the registry, executor-state or the assigner
  agent       an agent; NAME is the ID of its executor, or a prefix of IDs and '*'
  job         a job service; NAME is the prefix of the names of its jobs
  autoscaler  reads the usage and claims idle executors
  viewer      reads everything
  operator    does everything that the public API offers`,
		Example: "  berth certs issue --dir certs gateway gateway-0 --hosts gateway-0.example.com\n" +
			"  berth certs issue --dir certs service registry-0\n  berth certs issue --dir certs operator alice",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := identity.ParseRole(args[0])
			if err != nil {
				return fault.BadField(fault.ReasonInvalid, "ROLE", "%v", err)
			}
			id, err := identity.New(cluster, role, args[1])
			if err != nil {
				return fault.New(fault.Invalid, fault.ReasonInvalid, "%v", err)
			}
			if err := positive(lasts); err != nil {
				return err
			}
			if hosts, err = process.CheckList("hosts", "", hosts); err != nil {
				return err
			}
			switch set := cmd.Flags().Changed("hosts"); {
			case set && role&servers == 0:
				return fault.BadField(fault.ReasonInvalid, "--hosts", "must not be set for the role %v, which serves no calls",
					role)
			case !set && role&servers != 0:
				hosts = localhost
			}
			return issue(cmd, dir, output, id, hosts, lasts)
		},
	}
	flags(cmd, &dir, &output, &lasts)
	cmd.Flags().StringVar(&cluster, "cluster", cluster, "cluster of the holder")
	cmd.Flags().StringSliceVar(&hosts, "hosts", nil,
		"host names and addresses by which clients call the process (default of gateway, service and agent: localhost,127.0.0.1,::1)")
	return cmd
}

func issue(cmd *cobra.Command, dir, output string, id identity.Identity, hosts []string, lasts time.Duration) error {
	authority, err := certs.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Precondition, fault.ReasonInvalid,
			"%s has no certificate authority: run 'berth certs init --dir %s' first", dir, dir).Because(err)
	}
	if err != nil {
		return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot use the authority: %v", err).Because(err)
	}
	files, err := authority.Issue(id, hosts, lasts)
	if err != nil {
		return fault.New(fault.Precondition, fault.ReasonInvalid, "cannot issue the certificate: %v", err).Because(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return err
	}
	result := issued{Certificate: files.Cert, Key: files.Key, Identity: id.String(), Expires: pair.Leaf.NotAfter}
	return result.write(cmd, output, result.Identity)
}

func flags(cmd *cobra.Command, dir, output *string, lasts *time.Duration) {
	cmd.Flags().StringVar(dir, "dir", "", "directory of the authority and of the certificates")
	cmd.Flags().DurationVar(lasts, "valid", *lasts, "how long the certificate is valid; an issued one at most as long as its authority")
	cli.OutputFlag(cmd.Flags(), output)
	_ = cmd.MarkFlagRequired("dir") // fails only for an unknown flag
}

func positive(valid time.Duration) error {
	if valid <= 0 {
		return fault.BadField(fault.ReasonInvalid, "--valid", "must be longer than 0, got %v", valid)
	}
	return nil
}
