// Command berth controls Berth from the command line, runs each process of a cluster, and
// runs a whole cluster on one machine (`berth dev`).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/internal/bench"
	"berth.dev/cmd/berth/internal/certificates"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/cmd/berth/internal/demo"
	"berth.dev/cmd/berth/internal/dev"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/restore"
	"berth.dev/cmd/berth/internal/serve"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/process"
)

func main() {
	agent.ShimMain() // this binary is also the parent process of workers
	process.FloorHeap()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

	code := cli.Run(ctx, newRoot(cli.Standard()), os.Args[1:])
	stop()
	os.Exit(code)
}

// newRoot returns the command with all its subcommands.
func newRoot(streams cli.Streams) *cobra.Command {
	root := cli.New(streams)
	root.AddCommand(certificates.Command(), dev.Command(), demo.Command(), bench.Command(), replay.Command())
	root.AddCommand(serve.Commands()...)
	root.AddCommand(restore.Commands()...)
	return root
}
