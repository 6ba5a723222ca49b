// Command berth controls Berth from the command line, runs each process of a cluster, and
// runs a whole cluster on one machine (`berth dev`).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/root"
	"berth.dev/pkg/process"
)

func main() {
	root.ShimMain() // this binary is also the parent process of workers
	process.FloorHeap(process.FloorService)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, forget := process.HangupContext(ctx)

	code := cli.Run(ctx, root.New(cli.Standard()), os.Args[1:])
	forget()
	stop()
	os.Exit(code)
}
