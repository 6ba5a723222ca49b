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
	cmd := a.asksWithin(&cobra.Command{
		Use:   "doctor",
		Short: "Look over a cluster and its etcd, and say what to do",
		Long: `Look over gateways, services and, where --etcd-endpoints names it, etcd: who
leads, replicas, versions, findings, clocks, quorum, alarms, space, latency and
certificates. The gateways' listeners for agents and services are looked for at
the default ports, or where --agents-gateway and --internal-gateway say. Each line is OK, WARN or FAIL; one that is not OK says what to do.
It changes nothing. Exit code 4 if no gateway answers in time, 1 if anything else
FAILs, 0 otherwise.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf(cmd, "output", output, "table", "json"); err != nil {
				return err
			}
			gateways.Public = strings.Split(a.flags.gateway, ",")
			facts, err := doctor.Look(cmd.Context(), gateways, config, a.flags.timeout)
			if err != nil {
				return err
			}
			checks := doctor.Judge(facts)
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
				return fault.New(kind, "", "%d of %d checks fail", n, len(checks))
			}
			return err
		},
	}, doctor.Patience, "how long each gateway, etcd member and listener has to answer")
	flags := cmd.Flags()
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	flags.StringSliceVar(&gateways.Agents, "agents-gateway", nil, "gateways as agents have them in --gateways, host:port")
	flags.StringSliceVar(&gateways.Internal, "internal-gateway", nil, "gateways as the services have them in --gateways, host:port")
	flags.StringSliceVar(&config.Etcd, "etcd-endpoints", nil, "etcd endpoints to look at too, host:port; https://host:port for TLS")
	flags.StringVar(&config.TLSCert, "tls-cert", "", "certificate file (PEM) to call gateways and etcd with")
	flags.StringVar(&config.TLSKey, "tls-key", "", "key file (PEM) of the certificate")
	flags.StringVar(&config.TLSCA, "tls-ca", "", "file (PEM) of the authorities that they must be signed by")
	return cmd
}
