// Command berth controls Berth from the command line, runs each process of a cluster, and
// runs a whole cluster on one machine (`berth dev`).
package main

import (
	"context"
	"os"

	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/root"
	"berth.dev/pkg/process"
)

func main() {
	root.ShimMain() // this binary is also the parent process of workers
	process.FloorHeap(process.FloorService)

	ctx, stop := process.SignalContext(context.Background())
	code := cli.Run(ctx, root.New(cli.Standard()), os.Args[1:])
	stop()
	os.Exit(code)
}
