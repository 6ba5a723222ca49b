// Package serve holds the commands that run Berth's processes: the same as the
// services' own binaries, in the one binary `berth`.
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

// Commands are the services as subcommands.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		command.Agent(), command.Sim(), etcd(),
		service("registry", "Run one replica of the registry, the reservation queue", registry.Defaults(), registry.Run),
		service("executor-state", "Run one replica of executor-state, inventory and leases", executorstate.Defaults(), executorstate.Run),
		service("assigner", "Run one replica of the assigner, which hands workers to executors", assigner.Defaults(), assigner.Run),
		service("gateway", "Run a gateway: REST and gRPC in front of the services", gateway.DefaultConfig(), gateway.RunAlone),
	}
}

func service[C any](name, short string, defaults C, run func(context.Context, C, func(process.Addresses)) error) *cobra.Command {
	return process.Command(name, short, defaults, func(ctx context.Context, config C) error { return run(ctx, config, nil) })
}
