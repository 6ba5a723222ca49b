package cell

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth-agent/command"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/tracing"
	"berth.dev/pkg/transport"
)

// CommandConfig is the configuration of `berth cell`.
type CommandConfig struct {
	ID         string   `mapstructure:"id" usage:"ID of the cell in the parent, an executor ID of at most 63 characters"`
	Parent     []string `mapstructure:"parent" form:"gateway" usage:"addresses of the --agents-listen of the parent's gateways, host:port or URL"`
	Gateway    []string `mapstructure:"gateway" form:"gateway" usage:"gateway addresses of the child, host:port or URL"`
	Into       string   `mapstructure:"into" usage:"where the child runs the workers: executors, or cells of the child"`
	Attributes []string `mapstructure:"attributes" usage:"attributes of the cell in the parent, name=value"`
	Listen     string   `mapstructure:"listen" form:"listen" usage:"address to serve the requests of the parent's assigner on; no host means loopback, port 0 picks one"`
	Advertise  string   `mapstructure:"advertise" form:"advertise" usage:"address at which the parent's assigner reaches this agent, by default the bound address"`
	HTTPListen string   `mapstructure:"http-listen" form:"listen" usage:"listen address for health and metrics; by default the agent serves neither"`
	Dir        string   `mapstructure:"dir" form:"path" usage:"directory for the agent's secret and tombstones; by default /var/lib/berth-cell/ID for root, otherwise berth-cell/ID in $XDG_STATE_HOME or ~/.local/state"`

	GatewayCA    string `mapstructure:"gateway-tls-ca" form:"path" usage:"PEM file of the certificate authorities for the child's gateways; with https://, the default is those of this host"`
	GatewayCert  string `mapstructure:"gateway-tls-cert" form:"path" usage:"PEM file of the certificate that proves the role in the child"`
	GatewayKey   string `mapstructure:"gateway-tls-key" form:"path" usage:"PEM file of the key of --gateway-tls-cert"`
	GatewayToken string `mapstructure:"gateway-token-file" form:"path" usage:"file with a bearer token that proves the role in the child"`

	LogFormat   string        `mapstructure:"log-format" usage:"log format: json or text"`
	LogLevel    string        `mapstructure:"log-level" usage:"minimum log level: debug, info, warn or error"`
	AddressFile string        `mapstructure:"address-file" form:"path" usage:"file that receives the bound addresses as JSON"`
	StopTimeout time.Duration `mapstructure:"stop-timeout" least:"0s" usage:"maximum duration of an orderly stop"`
	Pprof       bool          `mapstructure:"pprof" usage:"serve Go profiles under /debug/pprof/ on the address for health and metrics; without TLS, every caller can read them"`

	process.Security `mapstructure:",squash"`
	Tracing          tracing.Config `mapstructure:",squash"`
}

// Command returns `berth cell`.
func Command() *cobra.Command {
	defaults := CommandConfig{
		Parent: []string{process.DefaultAgents}, Gateway: []string{process.DefaultPublic}, Into: "executors",
		Listen: "127.0.0.1:0", LogFormat: "text", LogLevel: "info", StopTimeout: 30 * time.Second,
		Tracing: tracing.Defaults(),
	}
	cmd := process.Command("cell", "Run a cluster as a cell of a parent cluster, which uses it like an executor", defaults,
		run)
	cmd.Long = `Run a cluster, the child, as a cell of a parent cluster.

The parent offers reservations with constraints.cells to its cells. The command holds executors
of the child for them, binds them when the parent has chosen this cell, and reports to the
parent how the workers end. It needs the role of an agent in the parent, and that of a job
service or an operator in the child. The --tls-* options are for the parent, and the
--gateway-* options for the child. If the command stops, the workers keep running, and the next
one with the same --id adopts them.`
	cmd.Example = "  berth cell --id zone-a --parent root:8081 --gateway zone-a:8080 --dir /var/lib/berth-cell\n" +
		"  berth cell --id region-1 --parent root:8081 --gateway region-1:8080 --into cells --attributes region=eu"
	return cmd
}

// common returns the settings that every process has.
func (config CommandConfig) common() process.Common {
	return process.Common{Listen: config.Listen, HTTPListen: config.HTTPListen, Security: config.Security,
		AddressFile: config.AddressFile, StopTimeout: config.StopTimeout, Pprof: config.Pprof, Tracing: config.Tracing}
}

// Check returns every mistake in the configuration that is visible without any other file.
func (config CommandConfig) Check() error {
	attributes, err := command.Pairs("--attributes", config.Attributes)
	errs := []error{command.CheckAgent(config.common(), config.LogFormat, config.LogLevel), err,
		command.CheckExecutor("id", model.Executor{Address: config.Advertise, Attributes: attributes, Cell: true})}
	if config.ID != "" && !model.ValidName(config.ID, maxID) {
		errs = append(errs, fault.BadField(fault.ReasonBadName, "--id",
			"must be 1 to %d letters, digits, '.', '_' and '-', the first a letter or digit, got %.80q", maxID, config.ID))
	}
	if config.Into != "executors" && config.Into != "cells" {
		errs = append(errs, fault.BadField(fault.ReasonInvalid, "--into", "must be executors or cells, got %q", config.Into))
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, config CommandConfig) (err error) {
	log, err := process.NewLogger(os.Stderr, config.LogFormat, config.LogLevel)
	if err != nil {
		return err
	}
	attributes, err := command.Pairs("--attributes", config.Attributes)
	if err != nil {
		return err
	}
	var security *tls.Config
	if config.TLSCert != "" {
		security = &tls.Config{MinVersion: tls.VersionTLS12} // only for the schemes of the addresses
	}
	parents, err := client.Addresses(config.Parent, security)
	if err != nil {
		return renamed(err, "--parent")
	}
	if i := slices.IndexFunc(parents, func(a string) bool { return strings.Contains(a, "/") }); i >= 0 {
		return fault.BadField(fault.ReasonUnsupported, "--parent",
			"%q has a path, but agents have the host and port of a gateway: use host:port", parents[i])
	}
	child, err := config.dial()
	if err != nil {
		return err
	}
	defer child.Close()
	driver, err := New(Config{ID: config.ID, Child: child, DialWatch: config.dial,
		IntoCells: config.Into == "cells", Log: log})
	if err != nil {
		return err
	}
	dir, err := command.Directory("--dir", filepath.Join("berth-cell", config.ID), config.Dir, os.Geteuid(),
		os.Getenv)
	if err != nil {
		return err
	}
	log.Info("using the directory", "dir", dir)
	if err := process.MakeDir("--dir", dir, 0o750); err != nil {
		return err
	}
	common := config.common()
	add := func(h *host.Host, bound net.Addr) (*agent.Agent, error) {
		address, err := process.Instance(config.Advertise, bound)
		if err != nil {
			return nil, err
		}
		a, err := h.Add(agent.Config{ID: config.ID, Address: address, Attributes: attributes, Driver: driver, Cell: driver,
			Dir: dir})
		if err == nil {
			driver.Attach(a)
		}
		return a, err
	}
	return command.Serve(ctx, common, config.ID, parents, false, log, add)
}

// dial returns a client of the child.
func (config CommandConfig) dial() (*client.Client, error) {
	security, err := transport.RenewedClientConfig(config.GatewayCert, config.GatewayKey, config.GatewayCA)
	if err == nil {
		err = transport.CheckValid(security, config.GatewayCert)
	}
	if err != nil {
		f := fault.Of(err)
		return nil, fault.New(f.Kind, f.Reason, "%s", strings.ReplaceAll(f.Message, "--tls-", "--gateway-tls-"))
	}
	if security == nil && strings.Contains(strings.Join(config.Gateway, ","), "https://") {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	options := []client.Option{client.WithTLS(security)}
	if file := config.GatewayToken; file != "" {
		token := func(context.Context) (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
		if _, err := token(context.Background()); err != nil {
			return nil, fault.BadField(fault.ReasonInvalid, "--gateway-token-file", "cannot be read: %v", err)
		}
		options = append(options, client.WithToken(token))
	}
	child, err := client.Dial(config.Gateway, options...)
	return child, renamed(err, "--gateway")
}

// renamed returns an error about a list of addresses as one about an option.
func renamed(err error, option string) error {
	f := fault.Of(err)
	if err == nil || len(f.Fields) != 1 {
		return err
	}
	return fault.BadField(f.Reason, option, "%s", strings.TrimPrefix(f.Message, f.Fields[0].Name+": "))
}
