// Executor-state runs one replica of the inventory of executors, which grants leases only
// out of free capacity.
package main

import (
	"context"

	"berth.dev/pkg/process"
	executorstate "berth.dev/services/executor-state"
)

func main() {
	run := func(ctx context.Context, config executorstate.Config) error {
		return executorstate.Run(ctx, config, nil)
	}
	process.Main(process.Command("executor-state", "Run one replica of the inventory.", executorstate.Defaults(), run))
}
