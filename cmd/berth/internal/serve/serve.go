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
	list := []*cobra.Command{
		command.Agent(), command.Sim(), etcd(),
		service("registry", "Run a replica of the registry, the reservation queue", registry.Defaults(), registry.Run),
		service("executor-state", "Run a replica of executor-state, the inventory and its leases", executorstate.Defaults(),
			executorstate.Run),
		service("assigner", "Run a replica of the assigner, which starts workers on executors", assigner.Defaults(),
			assigner.Run),
		service("gateway", "Run a gateway, which serves REST and gRPC for all services", gateway.DefaultConfig(),
			gateway.RunAlone),
	}
	for _, cmd := range list {
		cmd.Example = examples[cmd.Name()]
	}
	return list
}

// examples has the examples of each command. The separate binaries of the processes have
// other names, so the examples belong to berth.
var examples = map[string]string{
	"agent": "  berth agent --gateways gateway-0:8081 --resources slots=4,cpu=4,memory=8Gi --allow /opt/train\n" +
		"  berth agent --config agent.yaml",
	"sim":  "  berth sim --gateways 127.0.0.1:8081 --executors 1000",
	"etcd": "  berth etcd --dir /tmp/etcd --listen 127.0.0.1:2379",
	"registry": "  berth registry --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379 --gateways gateway-0:8082\n" +
		"  berth registry --config registry.yaml",
	"executor-state": "  berth executor-state --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379 --gateways gateway-0:8082",
	"assigner":       "  berth assigner --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379 --gateways gateway-0:8082",
	"gateway":        "  berth gateway --listen 127.0.0.1:8080 --etcd-endpoints etcd-0:2379,etcd-1:2379,etcd-2:2379",
}

func service[C any](name, short string, defaults C, run func(context.Context, C,
	func(process.Addresses)) error) *cobra.Command {
	return process.Command(name, short, defaults, func(ctx context.Context,
		config C) error {
		return run(ctx, config, nil)
	})
}
