package cli

import (
	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/cmd/berth/internal/doctor"
	"berth.dev/cmd/berth/internal/running"
)

func (a *app) doctor() *cobra.Command {
	var output string
	var etcd running.Etcd
	var gateways doctor.Gateways
	cmd := a.callsWithin(&cobra.Command{
		Use:   "doctor",
		Short: "Check a cluster and its etcd, and suggest fixes",
		Long: `Check gateways, services and, with --etcd-endpoints, etcd: leaders, replicas,
versions, findings, clocks, quorum, alarms, space, latency and certificates. The
command expects the gateways' listeners for agents and services at the default
ports, unless --agents-gateway and --internal-gateway set other addresses.

Each line is OK, WARN, FAIL or SKIP, and suggests a fix unless it is OK. The command
changes nothing. It exits with code 4 if no gateway answers in time, with 1 if
another check FAILs, and with 0 otherwise.`,
		Example: "  berth doctor\n  berth doctor --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := doctor.Config{Gateways: gateways, Cert: a.flags.tlsCert, Patience: a.flags.timeout}
			var err error
			if config.Public, config.Options, err = a.flags.options(); err != nil {
				return err
			}
			if config.TLS, err = a.flags.security(); err != nil {
				return err
			}
			if config.Etcd, err = etcd.Config(); err != nil {
				return err
			}
			facts, err := doctor.Collect(cmd.Context(), config)
			if err != nil {
				return err
			}
			checks := doctor.Evaluate(facts)
			err = a.value(output, map[string][]doctor.Check{"checks": checks}, show.Checks(checks), show.CheckNames(checks))
			if n := doctor.Failed(checks); err == nil && n > 0 {
				kind := fault.Precondition
				if doctor.Unreachable(facts) {
					kind = fault.Unavailable
				}
				return fault.New(kind, "", "%d of %d checks failed", n, len(checks))
			}
			return err
		},
	}, doctor.Patience, "maximum time for the answer of each gateway, etcd member and listener")
	flags := cmd.Flags()
	outputFlag(flags, &output, textFormats...)
	flags.StringSliceVar(&gateways.Agents, "agents-gateway", nil,
		"addresses in the --gateways of agents, host:port (default: the default port)")
	flags.StringSliceVar(&gateways.Internal, "internal-gateway", nil,
		"addresses in the --gateways of services, host:port (default: the default port)")
	etcd.Flags(flags, "etcd endpoints to check, host:port or https://host:port for TLS (default: none)")
	return cmd
}
