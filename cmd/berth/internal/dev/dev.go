// Package dev runs a whole cluster in one process that needs no other program: embedded
// etcd, the services, a gateway and executors. It is `berth dev`. When it prints that
// Berth is running, all executors are ready.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/cmd/berth/internal/cluster"
	"berth.dev/cmd/berth/internal/running"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/tracing"
)

// Config is the configuration of `berth dev`.
type Config struct {
	Listen    string `mapstructure:"listen" form:"listen" usage:"address to serve REST and gRPC on"`
	Executors int    `mapstructure:"executors" least:"0" usage:"number of simulated executors; by default 4, and none with --agents"`
	Agents    int    `mapstructure:"agents" least:"0" usage:"number of real agents; their workers are processes on this host"`
	Slots     int    `mapstructure:"slots" least:"1" usage:"number of workers that fit on an executor"`
	Starts    int    `mapstructure:"starts" least:"1" usage:"maximum number of workers that an executor starts at the same time, with readiness REPORTED until they are ready; by default twice the number of processors, at least 4"`
	// Other agents can register at AgentsListen.
	AgentsListen   string `mapstructure:"agents-listen" form:"listen" usage:"address to serve calls of agents on; port 0 picks one"`
	InternalListen string `mapstructure:"internal-listen" form:"listen" usage:"address to serve calls between Berth's services on; port 0 picks one"`
	DataDir        string `mapstructure:"data-dir" form:"path" usage:"directory for the data; by default a temporary directory"`
	TLS            bool   `mapstructure:"tls" usage:"encrypt all connections, with certificates in the directory certs of the data directory"`
	Access         string `mapstructure:"access" form:"path" usage:"YAML file of bearer tokens, OpenID Connect issuers and tenants"`
	AuditLog       string `mapstructure:"audit-log" form:"path" usage:"file for the audit log of the gateway, in lines of JSON; - is standard output"`
	LogFormat      string `mapstructure:"log-format" usage:"format of log lines: json or text"`
	LogLevel       string `mapstructure:"log-level" usage:"minimum level of log lines: debug, info, warn or error"`

	Tracing tracing.Config `mapstructure:",squash"`
}

// defaultExecutors is the number of simulated executors if no number of executors or agents is
// set.
const defaultExecutors = 4

const stopTimeout = 20 * time.Second

// Command returns `berth dev`.
func Command() *cobra.Command { return command(run) }

func command(run func(ctx context.Context, config Config, out io.Writer) error) *cobra.Command {
	defaults := Config{Listen: process.DefaultPublic, AgentsListen: "127.0.0.1:0", InternalListen: "127.0.0.1:0",
		Slots: 1, LogFormat: "text", LogLevel: "warn", Tracing: tracing.Defaults()}
	var cmd *cobra.Command
	cmd = process.Command("dev", "Run a whole cluster in one process, with embedded etcd", defaults,
		func(ctx context.Context, config Config) error {
			return run(ctx, config.populated(cmd.Flags().Changed("executors")), cmd.OutOrStdout())
		})
	process.StopOnHangup(cmd)
	cmd.Example = "  berth dev\n  berth dev --listen 127.0.0.1:9080 --executors 100 --data-dir /tmp/berth"
	return cmd
}

// Check returns every mistake in the configuration that is visible without any other file. The
// gateway of a cluster for development listens beyond loopback only with --tls.
func (config Config) Check() error {
	errs := []error{process.CheckLog(config.LogFormat, config.LogLevel), config.Tracing.Check(false)}
	if !config.TLS {
		var plain process.Common
		errs = append(errs, plain.CheckListen("--listen", config.Listen),
			plain.CheckListen("--agents-listen", config.AgentsListen), plain.CheckListen("--internal-listen", config.InternalListen))
	}
	return errors.Join(errs...)
}

// populated returns the configuration with the default number of simulated executors, unless the
// user has set their number or that of agents.
func (config Config) populated(set bool) Config {
	if !set && config.Agents == 0 {
		config.Executors = defaultExecutors
	}
	return config
}

func run(ctx context.Context, config Config, out io.Writer) (err error) {
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	go process.BoundHeap(ctx, process.LargeAlways)
	stopped := "Berth has stopped. Its data is in " + config.DataDir + "."
	defer func() {
		if err == nil {
			fmt.Fprintln(out, stopped)
		}
	}()
	if config.DataDir == "" {
		stopped = "Berth has stopped and deleted its data."
		if config.DataDir, err = os.MkdirTemp("", "berth-"); err != nil {
			return fault.New(fault.Precondition, fault.ReasonInvalid,
				"cannot create a temporary directory; set --data-dir or TMPDIR").Because(err)
		}
		defer os.RemoveAll(config.DataDir)
	} else if err := process.MakeDir("--data-dir", config.DataDir, 0o700); err != nil {
		return err
	}
	var secured security
	if config.TLS {
		if secured, err = issue(config.DataDir); err != nil {
			return err
		}
	}
	c, err := cluster.Start(ctx, config.cluster(secured))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	agents, err := secured.of(identity.Agent, everyAgent).Secure(defaultCluster, identity.Agent, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer agents.Close()
	traces, err := process.Common{Tracing: config.Tracing}.Trace(ctx, "agent", "dev", nil, log, nil)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	h := host.Open(ctx, l, []string{c.AgentsGateway()}, agents, traces, log)
	defer func() { err = errors.Join(err, h.Close(true, stopTimeout)) }()
	if err := populate(h, c, config); err != nil {
		return err
	}
	if err := awaitExecutors(ctx, c.Gateway(), secured, config.Executors+config.Agents); err != nil {
		return err
	}
	introduce(out, c, config, secured)
	select {
	case <-ctx.Done():
	case <-c.Stopping():
	case <-h.Stopping():
	}
	return nil
}

// cluster returns the configuration of etcd, the services and the gateway.
func (config Config) cluster(secured security) cluster.Config {
	return cluster.Config{
		Security: func(role identity.Role, name string) (process.Security, error) {
			part := secured.of(role, name)
			if role == identity.Gateway {
				part.AuditLog = config.AuditLog
			}
			return part, nil
		},
		EtcdSecurity: secured.etcd, Access: config.Access,
		DataDir: config.DataDir, Listen: config.Listen, AgentsListen: config.AgentsListen,
		InternalListen: config.InternalListen,
		LogFormat:      config.LogFormat, LogLevel: config.LogLevel, Tracing: config.Tracing, Bounded: true,
	}
}

func populate(h *host.Host, c *cluster.Cluster, config Config) error {
	slots := resource.Vector{resource.Slots: int64(config.Slots)}
	if err := h.Simulate("sim", config.Executors, "sim", slots, config.Starts); err != nil {
		return err
	}
	for i := range config.Agents {
		id := fmt.Sprintf("agent-%d", i)
		dir := filepath.Join(c.Dir(), "agents", id)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		detected, err := agent.Detect(dir)
		if err != nil {
			return err
		}
		detected[resource.Slots] = int64(config.Slots)
		// `berth dev` serves one developer on loopback, so its agents allow every command
		// and every environment variable.
		driver, err := agent.NewProcess(agent.ProcessConfig{Dir: dir, Allow: []string{agent.AllowAll},
			AllowEnv: []string{agent.AllowAll}})
		if err != nil {
			return err
		}
		if _, err := h.Add(agent.Config{ID: id, SKU: "host", Host: "localhost", Resources: detected, Driver: driver,
			Dir: dir, Starts: config.Starts}); err != nil {
			return err
		}
	}
	return nil
}

// awaitExecutors waits until all executors are ready. After that, Berth grants a
// reservation that fits immediately.
func awaitExecutors(ctx context.Context, gateway string, secured security, n int) error {
	config, err := secured.client()
	if err != nil {
		return err
	}
	c, err := client.Dial([]string{gateway}, client.WithTLS(config))
	if err != nil {
		return err
	}
	defer c.Close()
	return running.AwaitReady(ctx, c, "", n, time.Minute)
}

func introduce(out io.Writer, c *cluster.Cluster, config Config, secured security) {
	executors := "no executors"
	if n := config.Executors + config.Agents; n > 0 {
		executors = count(n, "executor") + " with " + count(config.Slots, "slot") + " each"
	}
	fmt.Fprintf(out, `Berth is running: %s.

  console         %s/
  REST and gRPC   %s        (etcd: %s)
  more agents     berth agent --gateways %s%s

Try, in another terminal:

%s  curl %s-X PUT $BERTH_GATEWAY/v1/jobs/hello/stages/map/reservation -d '{"count": 2}'
  curl %s-N $BERTH_GATEWAY/v1/jobs/hello/events
  berth get assignments
  berth cancel hello

Press Ctrl-C to stop.
`, executors, secured.url(c.Gateway()),
		secured.url(c.Gateway()), c.Etcd(), c.AgentsGateway(), secured.agentFlags(), secured.exports(c.Gateway()),
		secured.curl(), secured.curl())
}

func count(n int, noun string) string {
	return fmt.Sprintf("%d %s", n, english.PluralWord(n, noun, ""))
}
