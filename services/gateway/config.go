package gateway

import (
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/rpc"
)

// Config is the configuration of a gateway.
type Config struct {
	process.Common `mapstructure:",squash"`
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

// DefaultConfig is a gateway on 127.0.0.1:8080 before one replica of each
// service on this machine.
func DefaultConfig() Config {
	return Config{
		Common:        process.Defaults(8080, 0),
		Registry:      []string{"127.0.0.1:7101"},
		ExecutorState: []string{"127.0.0.1:7102"},
		Assigner:      []string{"127.0.0.1:7103"},
		CallDeadline:  rpc.DefaultDeadline,
		MaxBody:       maxBody,

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
