// Command berth-agent is `berth agent` as a program of its own, for hosts that run no
// other part of Berth.
package main

import (
	"berth.dev/cmd/berth-agent/command"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/process"
)

func main() {
	agent.ShimMain() // the keepers of workers run this binary too

	cmd := command.Agent()
	cmd.Use = "berth-agent"
	process.Main(cmd)
}
