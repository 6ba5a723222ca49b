package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/tracing"
)

// SimConfig is the configuration of a process of simulated executors.
type SimConfig struct {
	Gateways  []string `mapstructure:"gateways" form:"address" usage:"addresses of the gateways' --agents-listen, host:port"`
	Executors int      `mapstructure:"executors" least:"1" usage:"number of executors to simulate"`
	Prefix    string   `mapstructure:"prefix" usage:"prefix of the executor names, which are PREFIX-0 and so on"`
	SKU       string   `mapstructure:"sku" usage:"name of the hosts' shape"`
	Resources []string `mapstructure:"resources" usage:"capacity of each executor, name=quantity: cpu in cores (2, 500m), memory and disk in bytes (4Gi)"`
	Listen    string   `mapstructure:"listen" form:"listen" usage:"address to serve the assigner's requests on"`
	LogFormat string   `mapstructure:"log-format" usage:"json or text"`
	LogLevel  string   `mapstructure:"log-level" usage:"debug, info, warn or error"`

	AddressFile string `mapstructure:"address-file" form:"path" usage:"file to write the bound address to, as JSON"`

	process.Security `mapstructure:",squash"`
	Tracing          tracing.Config `mapstructure:",squash"`
}

// common returns the settings that every process has.
func (c SimConfig) common() process.Common {
	return process.Common{Listen: c.Listen, Security: c.Security, AddressFile: c.AddressFile,
		StopTimeout: 10 * time.Second, Tracing: c.Tracing}
}

// Check returns every mistake in the configuration that is visible without any other file.
func (c SimConfig) Check() error {
	return errors.Join(CheckAgent(c.common(), c.LogFormat, c.LogLevel),
		checkAmounts(c.executor(), unheard),
		CheckExecutor("prefix", model.Executor{ID: fmt.Sprintf("%s-%d", c.Prefix, c.Executors-1)}))
}

// Doubts returns what is valid and probably a mistake.
func (c SimConfig) Doubts() error { return c.executor().Doubts() }

// executor returns the options that an executor of an agent has too.
func (c SimConfig) executor() AgentConfig { return AgentConfig{SKU: c.SKU, Resources: c.Resources} }

// Sim returns the command that runs many simulated executors.
func Sim() *cobra.Command {
	defaults := SimConfig{
		Gateways: []string{process.DefaultAgents}, Executors: 100, Prefix: "sim", Resources: []string{"slots=4"},
		Listen: "127.0.0.1:0", LogFormat: "text", LogLevel: "warn", Tracing: tracing.Defaults(),
	}
	return process.Command("sim", "Run many simulated executors in one process", defaults, runSim)
}

func runSim(ctx context.Context, config SimConfig) error {
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	resources, err := executorResources(config.executor(), warning(log))
	if err != nil {
		return err
	}
	common := config.common()
	add := func(h *host.Host, _ net.Addr) (*agent.Agent, error) {
		log.Info("simulating", "executors", config.Executors)
		return nil, h.Simulate(config.Prefix, config.Executors, config.SKU, resources, 0)
	}
	return Serve(ctx, common, config.Prefix, config.Gateways, false, log, add)
}
