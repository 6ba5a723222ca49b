// Package serve runs each process of Berth with the same flags and defaults as the
// separate binary of that process. It contains the commands of `berth` that run the
// services, gateways and agents.
package serve

import (
	"context"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth-agent/command"
	"berth.dev/pkg/process"
	"berth.dev/services/assigner"
	executorstate "berth.dev/services/executor-state"
	"berth.dev/services/gateway"
	"berth.dev/services/registry"
)

// Commands returns a subcommand for each process.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		command.Agent(), command.Sim(), etcd(),
		service("registry", "Run a replica of the registry, the reservation queue", registry.Defaults(), registry.Run),
		service("executor-state", "Run a replica of executor-state, the inventory and its leases", executorstate.Defaults(),
			executorstate.Run),
		service("assigner", "Run a replica of the assigner, which starts workers on executors", assigner.Defaults(),
			assigner.Run),
		service("gateway", "Run a gateway, which serves REST and gRPC for all services", gateway.DefaultConfig(),
			gateway.RunAlone),
	}
}

func service[C any](name, short string, defaults C, run func(context.Context, C,
	func(process.Addresses)) error) *cobra.Command {
	return process.Command(name, short, defaults, func(ctx context.Context,
		config C) error {
		return run(ctx, config, nil)
	})
}
