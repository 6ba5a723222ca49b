// Command gateway serves Berth's REST and gRPC APIs to callers and agents, and forwards
// each call to the leader of the service that answers it.
package main

import (
	"context"

	"berth.dev/pkg/process"
	"berth.dev/services/gateway"
)

func main() {
	process.Main(process.Command("gateway", "Serve REST and gRPC and forward calls to the leaders",
		gateway.DefaultConfig(), func(ctx context.Context, config gateway.Config) error {
			return gateway.RunAlone(ctx, config, nil)
		}))
}
