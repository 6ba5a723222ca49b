// Assigner runs one replica of the service that starts leased workers on their executors.
// The replica leads or follows until it receives SIGTERM or SIGINT. A leader that stops
// first resigns, so that another replica takes over at once.
package main

import (
	"context"

	"berth.dev/pkg/process"
	"berth.dev/services/assigner"
)

func main() {
	run := func(ctx context.Context, config assigner.Config) error { return assigner.Run(ctx, config, nil) }
	process.Main(process.Command("assigner", "Run one replica of the assigner.", assigner.Defaults(), run))
}
