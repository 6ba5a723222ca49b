package root

import (
	"github.com/spf13/cobra"

	"berth.dev/cmd/berth/cell"
	"berth.dev/cmd/berth/internal/bench"
	"berth.dev/cmd/berth/internal/demo"
	"berth.dev/cmd/berth/internal/dev"
	"berth.dev/cmd/berth/internal/replay"
	"berth.dev/cmd/berth/internal/serve"
	"berth.dev/pkg/agent"
)

// ShimMain runs the process as the parent process of workers, if an agent started it as
// such. Otherwise it returns. The program must call it first.
func ShimMain() { agent.ShimMain() }

// processes returns the commands that run processes of Berth, or start them.
func processes() []*cobra.Command {
	return append(serve.Commands(), dev.Command(), demo.Command(), bench.Command(), replay.Command(), cell.Command())
}
