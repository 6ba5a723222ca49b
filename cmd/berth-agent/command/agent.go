// Package command holds the commands that run agents: that of a host, and simulated
// ones. berth-agent has the first, berth has both.
package command

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/process"
	"berth.dev/pkg/tracing"
)

// AgentConfig is the configuration of an agent.
type AgentConfig struct {
	ID          string        `mapstructure:"id" usage:"id of the executor; the host's name unless given"`
	Gateways    []string      `mapstructure:"gateways" usage:"addresses of the gateways' --agents-listen, host:port"`
	Listen      string        `mapstructure:"listen" usage:"address to take orders on; no host means loopback, port 0 picks one"`
	Advertise   string        `mapstructure:"advertise" usage:"address that orders reach this agent at; the bound one unless given"`
	SKU         string        `mapstructure:"sku" usage:"name of the host's shape"`
	Resources   []string      `mapstructure:"resources" usage:"what it offers, name=quantity: cpu in cores (2, 500m), memory and disk in bytes (4Gi); detected from the host by default, memory in whole 256 MiB and disk in whole GiB"`
	Reserved    []string      `mapstructure:"reserved" usage:"what of its resources is set aside for workers of a role, role:name=quantity,name=quantity; again for each role"`
	Attributes  []string      `mapstructure:"attributes" usage:"attributes, name=value"`
	Generation  int           `mapstructure:"generation" usage:"of executors that fit equally well, the newest generation is used first"`
	Dir         string        `mapstructure:"dir" usage:"directory for workers and their output"`
	WorkDir     string        `mapstructure:"work-dir" usage:"working directory of workers; each its own unless given"`
	Allow       []string      `mapstructure:"allow" usage:"commands that may be run: paths, or names in PATH; * allows all"`
	AllowEnv    []string      `mapstructure:"allow-env" usage:"environment variables that tasks may set, by name; * allows all but those known to load code, such as LD_PRELOAD or PYTHONPATH, which need their exact names; that list cannot be complete, so exact names are better than *"`
	StopWorkers bool          `mapstructure:"stop-workers" usage:"stop the workers with the agent; otherwise they run on, and the next agent adopts them"`
	Isolated    time.Duration `mapstructure:"stop-when-isolated-after" usage:"stop all workers when the control plane was silent for so long; 0 lets them run"`

	Starts        int           `mapstructure:"starts" usage:"how many workers are being started at once, the rest waits in line; twice the processors unless given, and at least 4"`
	StartTimeout  time.Duration `mapstructure:"start-timeout" usage:"how long a worker may take to come up before its start is given up"`
	LogMaxBytes   int           `mapstructure:"log-max-bytes" usage:"how large a file of a worker's output gets"`
	LogKeep       int           `mapstructure:"log-keep" usage:"how many files are kept of each of a worker's two streams, the one that is written to included"`
	EndedKeep     int           `mapstructure:"ended-keep" usage:"how many directories of workers that are over are kept"`
	EndedMaxBytes int           `mapstructure:"ended-max-bytes" usage:"how much the directories of workers that are over hold together"`
	EndedMaxAge   time.Duration `mapstructure:"ended-max-age" usage:"how long the directory of a worker that is over is kept"`

	Insecure    bool          `mapstructure:"insecure" usage:"allow listening beyond loopback without TLS"`
	LogFormat   string        `mapstructure:"log-format" usage:"json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"debug, info, warn or error"`
	AddressFile string        `mapstructure:"address-file" usage:"file to write the bound address to, as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" usage:"how long an orderly stop may take"`

	Tracing tracing.Config `mapstructure:",squash"`
}

func agentDefaults() AgentConfig {
	return AgentConfig{
		Gateways: []string{process.DefaultAgents}, Listen: "127.0.0.1:7200", Dir: "berth-agent",
		StartTimeout: 30 * time.Second, LogMaxBytes: 16 << 20, LogKeep: 2,
		EndedKeep: 64, EndedMaxBytes: 1 << 30, EndedMaxAge: 7 * 24 * time.Hour,
		LogFormat: "text", LogLevel: "info", StopTimeout: 30 * time.Second, Tracing: tracing.Defaults(),
	}
}

// Agent is the command that runs an executor agent.
func Agent() *cobra.Command {
	return process.Command("agent", "Run the agent of this host: it starts and stops workers as told", agentDefaults(), runAgent)
}

func runAgent(ctx context.Context, config AgentConfig) error {
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	id := config.ID
	if id == "" {
		if id, err = os.Hostname(); err != nil {
			return fault.New(fault.Invalid, fault.ReasonRequired, "--id is needed: this host has no name").Because(err)
		}
	}
	if err := os.MkdirAll(config.Dir, 0o750); err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "--dir %s cannot be made", config.Dir).Because(err)
	}
	resources, err := offered(config, warning(log))
	if err != nil {
		return err
	}
	reserved, err := setAside(config.Reserved, resources, warning(log))
	if err != nil {
		return err
	}
	attributes, err := pairs("--attributes", config.Attributes)
	if err != nil {
		return err
	}
	driver, err := agent.NewProcess(agent.ProcessConfig{
		Dir: config.Dir, WorkDir: config.WorkDir, Allow: config.Allow, AllowEnv: config.AllowEnv, StartTimeout: config.StartTimeout,
		LogMaxBytes: int64(config.LogMaxBytes), LogKeep: config.LogKeep,
		EndedKeep: config.EndedKeep, EndedMaxBytes: int64(config.EndedMaxBytes), EndedMaxAge: config.EndedMaxAge,
		Log: log,
	})
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "workers cannot be run in --dir %s", config.Dir).Because(err)
	}
	if config.Starts < 0 {
		return fault.BadField(fault.ReasonInvalid, "--starts", "cannot be negative")
	}
	common := process.Common{Listen: config.Listen, Insecure: config.Insecure, AddressFile: config.AddressFile, Tracing: config.Tracing}
	traces, err := common.Trace(ctx, "agent", id, nil, log, nil)
	if err != nil {
		return err
	}
	ports, err := common.Open(log)
	if err != nil {
		traces.Close()
		return err
	}
	address, err := process.Instance(config.Advertise, ports.Calls.Addr())
	if err != nil {
		ports.Close()
		traces.Close()
		return err
	}
	h := host.Open(ctx, ports.Calls, config.Gateways, traces, log)
	_, err = h.Add(agent.Config{
		ID: id, Address: address, SKU: config.SKU, Host: id, Attributes: attributes,
		Resources: resources, Reserved: reserved, Generation: int64(config.Generation), Driver: driver, Dir: config.Dir,
		Starts: config.Starts, StartTimeout: config.StartTimeout, StopWhenIsolatedAfter: config.Isolated,
	})
	if err != nil {
		h.Close(false, config.StopTimeout)
		return err
	}
	if err := common.Announce(log, ports, nil); err != nil {
		h.Close(false, config.StopTimeout)
		return err
	}
	<-h.Stopping()
	return h.Close(config.StopWorkers, config.StopTimeout)
}

// warning logs an option that is accepted and hardly meant.
func warning(log *slog.Logger) func(string) { return func(text string) { log.Warn(text) } }
