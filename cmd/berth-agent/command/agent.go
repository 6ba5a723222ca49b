// Package command runs agents until the process receives a signal, and then shuts them down
// gracefully: by default the workers keep running, and the next agent of the host adopts
// them.
//
// The programs berth-agent and berth share the command [Agent], which runs the agent of a
// host. The program berth also has [Sim], which runs simulated agents.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/quantity"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/tracing"
)

// AgentConfig is the configuration of an agent.
type AgentConfig struct {
	ID          string        `mapstructure:"id" usage:"id of the executor, by default the name of the host"`
	Gateways    []string      `mapstructure:"gateways" form:"address" usage:"addresses of the gateways' --agents-listen, host:port"`
	Listen      string        `mapstructure:"listen" form:"listen" usage:"address to serve the assigner's requests on; no host means loopback, port 0 picks one"`
	Advertise   string        `mapstructure:"advertise" form:"advertise" usage:"address at which the assigner reaches this agent, by default the bound address"`
	HTTPListen  string        `mapstructure:"http-listen" form:"listen" usage:"listen address for health and metrics; by default the agent serves neither"`
	SKU         string        `mapstructure:"sku" usage:"name of the host's shape"`
	Resources   []string      `mapstructure:"resources" usage:"capacity of the executor, name=quantity: cpu in cores (2, 500m), memory and disk in bytes (4Gi); detected from the host by default, memory in whole 256 MiB and disk in whole GiB"`
	Reserved    []string      `mapstructure:"reserved" usage:"share of the resources that is reserved for workers of a role, role:name=quantity,name=quantity; 10% is a tenth of the executor's resource, rounded down; repeat it for each role"`
	Attributes  []string      `mapstructure:"attributes" usage:"attributes, name=value"`
	Generation  int           `mapstructure:"generation" usage:"generation of the host; of executors that fit equally well, the newest generation is used first"`
	Dir         string        `mapstructure:"dir" form:"path" usage:"directory for the agent's secret, workers, their output and volumes; by default /var/lib/berth-agent for root, otherwise berth-agent in $XDG_STATE_HOME or ~/.local/state"`
	WorkDir     string        `mapstructure:"work-dir" form:"path" usage:"working directory of workers, by default a directory for each worker"`
	WorkerUIDs  string        `mapstructure:"worker-uids" usage:"range of user IDs for workers, FIRST-LAST; each running worker gets an ID of its own; needs root or capabilities; by default workers run as the user of the agent"`
	Allow       []string      `mapstructure:"allow" usage:"absolute paths of the commands that tasks may run; * allows all"`
	AllowEnv    []string      `mapstructure:"allow-env" usage:"names of environment variables that tasks may set; * allows all except those known to load code, such as LD_PRELOAD or PYTHONPATH, which need their exact names; that list cannot be complete, so exact names are better than *"`
	StopWorkers bool          `mapstructure:"stop-workers" usage:"stop the workers with the agent; by default they keep running, and the next agent adopts them"`
	Isolated    time.Duration `mapstructure:"stop-when-isolated-after" least:"0s" usage:"stop all workers if the control plane is silent for this long; 0 keeps them running"`

	Starts        int           `mapstructure:"starts" least:"1" usage:"maximum number of workers that are started at the same time, with readiness REPORTED until they are ready; the others are queued; by default twice the number of processors, at least 4"`
	StartTimeout  time.Duration `mapstructure:"start-timeout" least:"1ms" usage:"time after which the start of a worker is given up"`
	LogMaxBytes   int           `mapstructure:"log-max-bytes" least:"1" usage:"maximum size of a file of worker output, in bytes"`
	LogKeep       int           `mapstructure:"log-keep" least:"1" usage:"number of files to keep for each of a worker's two streams, including the current one"`
	EndedKeep     int           `mapstructure:"ended-keep" least:"1" usage:"maximum number of directories of ended workers to keep"`
	EndedMaxBytes int           `mapstructure:"ended-max-bytes" least:"1" usage:"maximum total size of the directories of ended workers, in bytes"`
	EndedMaxAge   time.Duration `mapstructure:"ended-max-age" least:"1ms" usage:"maximum age of the directory of an ended worker"`

	LogFormat   string        `mapstructure:"log-format" usage:"json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"debug, info, warn or error"`
	AddressFile string        `mapstructure:"address-file" form:"path" usage:"file to write the bound addresses to, as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" least:"0s" usage:"maximum duration of an orderly stop"`
	Pprof       bool          `mapstructure:"pprof" usage:"serve Go profiles under /debug/pprof/ on the address for health and metrics; without TLS, every caller can read them"`

	process.Security `mapstructure:",squash"`
	Tracing          tracing.Config `mapstructure:",squash"`
}

func agentDefaults() AgentConfig {
	return AgentConfig{
		Gateways: []string{process.DefaultAgents}, Listen: "127.0.0.1:7200",
		StartTimeout: 30 * time.Second, LogMaxBytes: 16 << 20, LogKeep: 2,
		EndedKeep: 64, EndedMaxBytes: 1 << 30, EndedMaxAge: 7 * 24 * time.Hour,
		LogFormat: "text", LogLevel: "info", StopTimeout: 30 * time.Second, Tracing: tracing.Defaults(),
	}
}

// common returns the settings that every process has.
func (c AgentConfig) common() process.Common {
	return process.Common{Listen: c.Listen, HTTPListen: c.HTTPListen, Security: c.Security,
		AddressFile: c.AddressFile, StopTimeout: c.StopTimeout, Pprof: c.Pprof, Tracing: c.Tracing}
}

// Check returns every mistake in the configuration that is visible without the host.
func (c AgentConfig) Check() error {
	_, uids := agent.ParseUIDRange(c.WorkerUIDs)
	_, allow := agent.CheckAllow(c.Allow)
	var isolated error
	if c.Isolated > 0 && c.Isolated < leastIsolated {
		isolated = fault.BadField(fault.ReasonInvalid, "--stop-when-isolated-after", "must be 0 or at least %v, got %v",
			leastIsolated, c.Isolated)
	}
	return errors.Join(CheckAgent(c.common(), c.LogFormat, c.LogLevel), uids, allow, agent.CheckAllowEnv(c.AllowEnv),
		isolated, checkAmounts(c, unheard))
}

// leastIsolated is the shortest time without an answer that stops the workers. Below it, one delayed answer would.
const leastIsolated = time.Second

// Doubts returns what is valid and probably a mistake.
func (c AgentConfig) Doubts() (doubts error) {
	warn := func(flag, text string) {
		doubts = errors.Join(doubts, fault.BadField(fault.ReasonInvalid, flag, "%s", text))
	}
	if err := checkAmounts(c, warn); err != nil {
		return nil // Check returns it
	}
	return doubts
}

// CheckExecutor returns every mistake in the options of an executor for which executor-state would
// refuse it. idOption is the option of the ID. An empty ID or address has a valid default.
func CheckExecutor(idOption string, e model.Executor) error {
	e.ID, e.Address, e.Nonce = cmp.Or(e.ID, "id"), cmp.Or(e.Address, "address"), "nonce"
	err := model.CheckRegistration(&e)
	if err == nil {
		return nil
	}
	var errs []error
	for _, f := range fault.Of(err).Fields {
		option, entry, _ := strings.Cut(f.Name, ".")
		problem := f.Problem
		switch option {
		case "id":
			option, problem = idOption, fmt.Sprintf("%s, got %.60q", problem, e.ID)
		case "sku":
			problem = fmt.Sprintf("%s, got %.60q", problem, e.SKU)
		case "address":
			option = "advertise"
		}
		if entry != "" {
			problem = fmt.Sprintf("%.60q: %s", entry, problem)
		}
		errs = append(errs, fault.BadField(fault.ReasonInvalid, "--"+option, "%s", problem))
	}
	return errors.Join(errs...)
}

// CheckAgent returns every mistake in the settings that the agents of hosts and of cells have.
func CheckAgent(common process.Common, logFormat, logLevel string) error {
	return errors.Join(process.CheckLog(logFormat, logLevel), common.Security.Check(),
		common.Tracing.Check(common.Insecure), common.CheckListen("--listen", common.Listen),
		common.CheckListen("--http-listen", common.HTTPListen))
}

// checkAmounts returns every mistake in the resources, the reserved shares and the attributes.
// Shares of resources that are detected on the host can only be checked on the host.
func checkAmounts(c AgentConfig, warn warner) error {
	attributes, err := Pairs("--attributes", c.Attributes)
	errs := []error{err}
	// The host has these resources, in amounts that are not known here.
	resources := resource.Vector{"cpu": quantity.Max, "memory": quantity.Max, "disk": quantity.Max}.WithSlots()
	if len(c.Resources) > 0 {
		if resources, err = executorResources(c, warn); err != nil {
			errs = append(errs, err)
		}
	}
	var reserved map[string]resource.Vector
	if err == nil || len(c.Resources) == 0 {
		reserved, err = parseReserved(c.Reserved, resources, warn)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, CheckExecutor("id", model.Executor{ID: c.ID, Address: c.Advertise, SKU: c.SKU,
		Attributes: attributes, Resources: resources, Reserved: reserved, Generation: int64(c.Generation)}))...)
}

// Agent returns the command that runs an executor agent.
func Agent() *cobra.Command {
	return process.Command("agent", "Run the agent of this host, which starts and stops workers", agentDefaults(),
		runAgent)
}

func runAgent(ctx context.Context, config AgentConfig) error {
	process.FloorHeap(process.FloorAgent)
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	uids, err := agent.ParseUIDRange(config.WorkerUIDs)
	if err != nil {
		return err
	}
	if config.WorkerUIDs == "" && os.Geteuid() == 0 {
		log.Warn("workers run as root, like the agent: set --worker-uids FIRST-LAST to give each worker a user of its own")
	}
	id := config.ID
	if id == "" {
		if id, err = os.Hostname(); err != nil {
			return fault.New(fault.Invalid, fault.ReasonRequired,
				"--id is required, since the name of this host cannot be read").Because(err)
		}
	}
	if config.Dir, err = Directory("--dir", "berth-agent", config.Dir, os.Geteuid(), os.Getenv); err != nil {
		return err
	}
	log.Info("using the directory", "dir", config.Dir)
	if err := process.MakeDir("--dir", config.Dir, 0o750); err != nil {
		return err
	}
	resources, err := executorResources(config, warning(log))
	if err != nil {
		return err
	}
	warnBeyond(config.Dir, resources, warning(log))
	reserved, err := parseReserved(config.Reserved, resources, warning(log))
	if err != nil {
		return err
	}
	attributes, err := Pairs("--attributes", config.Attributes)
	if err != nil {
		return err
	}
	if err := CheckExecutor("id", model.Executor{ID: id, SKU: config.SKU, Attributes: attributes, Resources: resources,
		Reserved: reserved}); err != nil {
		return err
	}
	driver, err := agent.NewProcess(agent.ProcessConfig{
		Dir: config.Dir, WorkDir: config.WorkDir, Allow: config.Allow, AllowEnv: config.AllowEnv,
		WorkerUIDs: uids, StartTimeout: config.StartTimeout,
		LogMaxBytes: int64(config.LogMaxBytes), LogKeep: config.LogKeep,
		EndedKeep: config.EndedKeep, EndedMaxBytes: int64(config.EndedMaxBytes), EndedMaxAge: config.EndedMaxAge,
		Log: log,
	})
	if err != nil && fault.Of(err).Kind == fault.Invalid {
		return err // It names the option.
	}
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "the driver for --dir %s cannot be created",
			config.Dir).Because(err)
	}
	common := config.common()
	add := func(h *host.Host, bound net.Addr) (*agent.Agent, error) {
		address, err := process.Instance(config.Advertise, bound)
		if err != nil {
			return nil, err
		}
		return h.Add(agent.Config{
			ID: id, Address: address, SKU: config.SKU, Host: id, Attributes: attributes,
			Resources: resources, Reserved: reserved, Generation: int64(config.Generation), Driver: driver, Dir: config.Dir,
			Starts: config.Starts, StartTimeout: config.StartTimeout, StopWhenIsolatedAfter: config.Isolated,
		})
	}
	return Serve(ctx, common, id, config.Gateways, config.StopWorkers, log, add)
}

// Directory returns the absolute path of an agent's directory. configured is the value of the
// flag; without it, the path depends on the user and not on the working directory, so that the
// next agent finds the secret and the workers of this one. name is its default name.
func Directory(flag, name, configured string, uid int, getenv func(string) string) (string, error) {
	// The specification of XDG_STATE_HOME ignores relative paths.
	switch state := getenv("XDG_STATE_HOME"); {
	case configured != "":
		path, err := filepath.Abs(configured)
		if err != nil {
			return "", fault.BadField(fault.ReasonInvalid, flag, "cannot make %q absolute: %v", configured, err)
		}
		return path, nil
	case uid == 0:
		return "/var/lib/" + name, nil
	case filepath.IsAbs(state):
		return filepath.Join(state, name), nil
	case filepath.IsAbs(getenv("HOME")):
		return filepath.Join(getenv("HOME"), ".local", "state", name), nil
	}
	return "", fault.BadField(fault.ReasonRequired, flag, "is required, since neither XDG_STATE_HOME nor HOME is set")
}

// warning returns a function that logs a probable mistake in an option.
func warning(log *slog.Logger) warner {
	return func(flag, text string) { log.Warn(flag + ": " + text) }
}
