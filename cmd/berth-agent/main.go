// Command berth-agent runs the executor agent of a host, which starts and stops the host's
// workers. It is `berth agent` as a separate program, for hosts that run no other part of
// Berth.
package main

import (
	"berth.dev/cmd/berth-agent/command"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/process"
)

func main() {
	agent.ShimMain() // this binary is also the parent process of workers

	cmd := command.Agent()
	cmd.Use = "berth-agent"
	cmd.Example = "  berth-agent --id host-a --gateways gateway-0:8081,gateway-1:8081 --allow /usr/bin/python3"
	process.Main(cmd)
}
