package gateway

import (
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
)

// Config is the configuration of a gateway.
type Config struct {
	process.Common `mapstructure:",squash"`
	AgentsListen   string        `mapstructure:"agents-listen" form:"listen" usage:"listen address for calls of agents; the default host is loopback, and port 0 chooses a free port"`
	InternalListen string        `mapstructure:"internal-listen" form:"listen" usage:"listen address for calls between Berth's services; the default host is loopback, and port 0 chooses a free port"`
	Registry       []string      `mapstructure:"registry" form:"address" usage:"addresses of every replica of the registry, host:port"`
	ExecutorState  []string      `mapstructure:"executor-state" form:"address" usage:"addresses of every replica of executor-state, host:port"`
	Assigner       []string      `mapstructure:"assigner" form:"address" usage:"addresses of every replica of the assigner, host:port"`
	CallDeadline   time.Duration `mapstructure:"call-deadline" least:"1ms" usage:"deadline of calls without one, including the wait for a leader, at least 1ms"`
	MaxBody        int           `mapstructure:"max-body-bytes" usage:"maximum body of a REST call, bytes; at most 1048576"`
	PublicNames    []string      `mapstructure:"public-names" usage:"host names that REST callers may use in addition to addresses, localhost and the names in the certificate"`
	BasePath       string        `mapstructure:"base-path" usage:"path below which a proxy serves the gateway, such as /berth; the gateway also answers without it, so the proxy may remove it"`
	// MaxEventStreams also bounds the number of watches that the gateway has at etcd.
	MaxEventStreams int `mapstructure:"max-event-streams" usage:"maximum open streams of job events and watches"`

	MaxConnections      int `mapstructure:"max-connections" usage:"maximum open connections of callers; further connections get 503 or are closed"`
	MaxAgentConnections int `mapstructure:"max-agent-connections" usage:"maximum open connections of agents; an agent has one to each gateway"`
	MaxStreams          int `mapstructure:"max-streams" usage:"maximum open HTTP/2 streams on one connection"`
	MaxRequestMemory    int `mapstructure:"max-request-memory-bytes" usage:"maximum memory of requests in flight on each listener, bytes; at least 16777216"`
}

// leastRequestMemory is the smallest accepted value of --max-request-memory-bytes. It suffices for
// the largest request.
const leastRequestMemory = 16 << 20

// maxBody is the largest body that a REST call may have.
const maxBody = 1 << 20

// DefaultConfig returns the configuration of a gateway on ports 8080 to 8082 of the loopback
// interface, in front of one replica of each service on this machine.
func DefaultConfig() Config {
	return Config{
		Common:         process.Defaults(8080, 0),
		AgentsListen:   process.DefaultAgents,
		InternalListen: process.DefaultInternal,
		Registry:       []string{"127.0.0.1:7101"},
		ExecutorState:  []string{"127.0.0.1:7102"},
		Assigner:       []string{"127.0.0.1:7103"},
		CallDeadline:   rpc.DefaultDeadline,
		MaxBody:        maxBody,

		MaxEventStreams: 10_000,

		MaxConnections: 20_000,
		// A fleet of 100,000 agents, and a fifth more for agents that reconnect.
		MaxAgentConnections: 120_000,
		MaxStreams:          1000,
		MaxRequestMemory:    32 << 20,
	}
}

// replicas returns the addresses of the replicas of each service.
func (c Config) replicas() map[string][]string {
	return map[string][]string{
		model.ServiceRegistry:      c.Registry,
		model.ServiceExecutorState: c.ExecutorState,
		model.ServiceAssigner:      c.Assigner,
	}
}

// Check returns every mistake in the configuration that is visible without any other file.
func (c Config) Check() error {
	return errors.Join(c.Common.Check(), c.validate(), c.CheckListen("--agents-listen", c.AgentsListen),
		c.CheckListen("--internal-listen", c.InternalListen))
}

// validate rejects values out of range, and names that are not host names.
func (c Config) validate() error {
	var errs []error
	for _, limit := range []struct {
		option      string
		value       int
		least, most int
	}{
		{"--max-body-bytes", c.MaxBody, 1, maxBody},
		{"--max-event-streams", c.MaxEventStreams, 1, math.MaxInt32},
		{"--max-connections", c.MaxConnections, 1, math.MaxInt32},
		{"--max-agent-connections", c.MaxAgentConnections, 1, math.MaxInt32},
		{"--max-streams", c.MaxStreams, 1, math.MaxInt32},
		{"--max-request-memory-bytes", c.MaxRequestMemory, leastRequestMemory, math.MaxInt64},
	} {
		switch {
		case limit.value < limit.least:
			errs = append(errs, fault.BadField(fault.ReasonInvalid, limit.option, "must be at least %d, got %d", limit.least,
				limit.value))
		case limit.value > limit.most:
			errs = append(errs, fault.BadField(fault.ReasonInvalid, limit.option, "must be at most %d, got %d", limit.most,
				limit.value))
		}
	}
	for _, name := range c.PublicNames {
		if name == "" || strings.ContainsAny(name, "/:*@[] ") {
			errs = append(errs, fault.BadField(fault.ReasonInvalid, "--public-names",
				"must be host names without a port, such as berth.example.com, got %q", name))
			break
		}
	}
	if base := c.base(); base != "" {
		if problem := rpc.CheckBase(base); problem != "" {
			errs = append(errs, fault.BadField(fault.ReasonInvalid, "--base-path", "%s, got %q", problem, c.BasePath))
		}
	}
	return errors.Join(errs...)
}

// base returns the base path without slashes at its end; empty without one.
func (c Config) base() string { return strings.TrimRight(c.BasePath, "/") }

// open opens the gateway's ports.
func (c Config) open(log *slog.Logger) (*process.Listeners, error) {
	l, err := c.Open(log)
	if err != nil {
		return nil, err
	}
	if l.Agents, err = c.OpenCalls(log, "--agents-listen", c.AgentsListen); err == nil {
		l.Internal, err = c.OpenCalls(log, "--internal-listen", c.InternalListen)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
