package cli

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/cmd/berth/internal/doctor"
	"berth.dev/pkg/process"
)

func (a *app) doctor() *cobra.Command {
	var output string
	var config process.Common
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			gateways.Public = strings.Split(a.flags.gateway, ",")
			facts, err := doctor.Collect(cmd.Context(), gateways, config, a.flags.timeout)
			if err != nil {
				return err
			}
			checks := doctor.Evaluate(facts)
			if output == "json" {
				encoder := json.NewEncoder(a.Out)
				encoder.SetIndent("", "  ")
				err = encoder.Encode(map[string][]doctor.Check{"checks": checks})
			} else {
				_, err = io.WriteString(a.Out, show.Checks(checks))
			}
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
	outputFlag(flags, &output, "table", "json")
	flags.StringSliceVar(&gateways.Agents, "agents-gateway", nil,
		"addresses in the --gateways of agents, host:port (default: the default port)")
	flags.StringSliceVar(&gateways.Internal, "internal-gateway", nil,
		"addresses in the --gateways of services, host:port (default: the default port)")
	flags.StringSliceVar(&config.Etcd, "etcd-endpoints", nil,
		"etcd endpoints to check, host:port or https://host:port for TLS (default: none)")
	flags.StringVar(&config.TLSCert, "tls-cert", "", "certificate file (PEM) for calls to gateways and etcd")
	flags.StringVar(&config.TLSKey, "tls-key", "", "key file (PEM) of the certificate")
	flags.StringVar(&config.TLSCA, "tls-ca", "", "file (PEM) of the certificate authorities for gateways and etcd")
	return cmd
}
