// Registry runs one replica of the registry, which queues reservations and never loses an
// acknowledged one.
package main

import (
	"context"

	"berth.dev/pkg/process"
	"berth.dev/services/registry"
)

func main() {
	run := func(ctx context.Context, config registry.Config) error { return registry.Run(ctx, config, nil) }
	process.Main(process.Command("registry", "Run one replica of the reservation queue.", registry.Defaults(), run))
}
