package gateway

import (
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
	AgentsListen   string        `mapstructure:"agents-listen" usage:"address to serve registrations and heartbeats of agents on; no host means loopback, port 0 picks one"`
	InternalListen string        `mapstructure:"internal-listen" usage:"address to serve calls between Berth's services on; no host means loopback, port 0 picks one"`
	Registry       []string      `mapstructure:"registry" usage:"addresses of every replica of the registry, host:port"`
	ExecutorState  []string      `mapstructure:"executor-state" usage:"addresses of every replica of executor-state, host:port"`
	Assigner       []string      `mapstructure:"assigner" usage:"addresses of every replica of the assigner, host:port"`
	CallDeadline   time.Duration `mapstructure:"call-deadline" usage:"how long a call without a deadline may take, waiting for a leader included"`
	MaxBody        int           `mapstructure:"max-body" usage:"largest body of a REST call, bytes; at most 1048576"`
	PublicNames    []string      `mapstructure:"public-names" usage:"host names that REST callers may use besides addresses and localhost; others are refused"`
	// MaxEventStreams bounds what each gateway holds open at etcd, too.
	MaxEventStreams int `mapstructure:"max-event-streams" usage:"how many streams of job events are open at a time at most"`

	MaxConnections      int `mapstructure:"max-connections" usage:"maximum open connections of callers; more are answered 503, or closed"`
	MaxAgentConnections int `mapstructure:"max-agent-connections" usage:"maximum open connections of agents; an agent has one to each gateway"`
	MaxStreams          int `mapstructure:"max-streams" usage:"maximum HTTP/2 streams that are open at a time on one connection"`
	MaxRequestMemory    int `mapstructure:"max-request-memory" usage:"maximum memory of requests in flight on each listener, bytes; at least 16777216"`
}

// leastRequestMemory has room for the largest request.
const leastRequestMemory = 16 << 20

// maxBody is the largest body that a REST call may have.
const maxBody = 1 << 20

// DefaultConfig is a gateway on ports 8080 to 8082 of the loopback interface,
// before one replica of each service on this machine.
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
		// A fleet of 100,000, and a fifth more for agents that connect again.
		MaxAgentConnections: 120_000,
		MaxStreams:          1000,
		MaxRequestMemory:    32 << 20,
	}
}

// replicas are the addresses by the name of the service.
func (c Config) replicas() map[string][]string {
	return map[string][]string{
		model.ServiceRegistry:      c.Registry,
		model.ServiceExecutorState: c.ExecutorState,
		model.ServiceAssigner:      c.Assigner,
	}
}

// validate refuses limits that would not be limits, and names that no Host has.
func (c Config) validate() error {
	for _, limit := range []struct {
		option      string
		value       int
		least, most int
	}{
		{"--max-body", c.MaxBody, 1, maxBody},
		{"--max-event-streams", c.MaxEventStreams, 1, math.MaxInt32},
		{"--max-connections", c.MaxConnections, 1, math.MaxInt32},
		{"--max-agent-connections", c.MaxAgentConnections, 1, math.MaxInt32},
		{"--max-streams", c.MaxStreams, 1, math.MaxInt32},
		{"--max-request-memory", c.MaxRequestMemory, leastRequestMemory, math.MaxInt64},
	} {
		switch {
		case limit.value < limit.least:
			return fault.BadField(fault.ReasonInvalid, limit.option, "must be at least %d, got %d", limit.least, limit.value)
		case limit.value > limit.most:
			return fault.BadField(fault.ReasonInvalid, limit.option, "must be at most %d, got %d", limit.most, limit.value)
		}
	}
	for _, name := range c.PublicNames {
		if name == "" || strings.ContainsAny(name, "/:*@[] ") {
			return fault.BadField(fault.ReasonInvalid, "--public-names", "must be host names without a port, such as berth.example.com, got %q", name)
		}
	}
	return nil
}

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
