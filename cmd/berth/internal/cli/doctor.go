package cli

import (
	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/cmd/berth/internal/doctor"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/process"
)

func (a *app) doctor() *cobra.Command {
	var output, file, service string
	var etcd running.Etcd
	var gateways doctor.Gateways
	cmd := a.callsWithin(&cobra.Command{
		Use:   "doctor",
		Short: "Check a cluster and its etcd, or a configuration file, and suggest fixes",
		Long: `Check gateways, services and, with --etcd-endpoints, etcd: leaders, replicas,
versions, findings, clocks, quorum, alarms, space, latency and certificates. The
command expects the gateways' listeners for agents and services at the default
ports, unless --agents-gateway and --internal-gateway set other addresses.

Each line is OK, WARN, FAIL or SKIP, and suggests a fix unless it is OK. The command
changes nothing. It exits with code 4 if no gateway answers in time, with 1 if
another check FAILs, and with 0 otherwise.

With --config, check the configuration file of a process instead: every key and the
form of every value, as the process itself does when it starts. The command starts
and calls nothing, and reads no other file. It prints each problem as FILE:LINE:
OPTION: ACCEPTED FORM and exits with code 1 if there is one, with 2 if the file cannot
be read, and with 0 otherwise. By default, the name of the file (agent.yaml) or its
keys select the process.`,
		Example: "  berth doctor\n  berth doctor --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379 -o json\n" +
			"  berth doctor --config /etc/berth/agent.yaml\n  berth doctor --config prod.yaml --service gateway",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file != "":
				return a.checkConfig(cmd, file, service, output)
			case cmd.Flags().Changed("config"):
				return fault.BadField(fault.ReasonInvalid, "--config", "must be the name of a file")
			case service != "":
				return fault.BadField(fault.ReasonInvalid, "--service", "must be set together with --config")
			}
			config := doctor.Config{Gateways: gateways, Cert: a.flags.tlsCert, Patience: a.flags.timeout, Proxy: a.flags.proxy}
			var err error
			if config.Public, config.Options, err = a.flags.options(); err != nil {
				return err
			}
			if config.TLS, err = a.flags.security(); err != nil {
				return err
			}
			if config.Agents, err = process.CheckList("agents-gateway", "address", config.Agents); err != nil {
				return err
			}
			if config.Internal, err = process.CheckList("internal-gateway", "address", config.Internal); err != nil {
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
	// A file is checked without a gateway, so the context does not matter.
	withContext := cmd.PersistentPreRunE
	cmd.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if file != "" {
			return nil
		}
		return withContext(cmd, args)
	}
	flags := cmd.Flags()
	outputFlag(flags, &output, textFormats...)
	flags.StringSliceVar(&gateways.Agents, "agents-gateway", nil,
		"addresses in the --gateways of agents, host:port (default: the default port)")
	flags.StringSliceVar(&gateways.Internal, "internal-gateway", nil,
		"addresses in the --gateways of services, host:port (default: the default port)")
	flags.StringVar(&file, "config", "", "YAML configuration file of a process to check, instead of a cluster")
	flags.StringVar(&service, "service", "",
		"with --config, the process, such as registry or agent (default: by the name or the keys of the configuration)")
	_ = cmd.RegisterFlagCompletionFunc("service", func(cmd *cobra.Command, _ []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		return kindNames(a.configKinds(cmd.Root())), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for a second completion
	etcd.Flags(flags, "etcd endpoints to check, host:port or https://host:port for TLS (default: none)")
	return cmd
}
