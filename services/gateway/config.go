package gateway

import (
	"log/slog"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/rpc"
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
	// MaxEventStreams bounds what each gateway holds open at etcd, too.
	MaxEventStreams int `mapstructure:"max-event-streams" usage:"how many streams of job events are open at a time at most"`
}

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

// bodyLimit is the configured limit, which can only be lower than the largest.
func (c Config) bodyLimit() int64 {
	if c.MaxBody <= 0 || c.MaxBody > maxBody {
		return maxBody
	}
	return int64(c.MaxBody)
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
