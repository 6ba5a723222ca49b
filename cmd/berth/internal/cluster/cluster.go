// Package cluster runs a whole cluster in this process: embedded etcd, one replica of each service,
// and a gateway, connected by real sockets.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/process"
	"berth.dev/pkg/process/port"
	"berth.dev/pkg/tracing"
	"berth.dev/services/assigner"
	executorstate "berth.dev/services/executor-state"
	"berth.dev/services/gateway"
	"berth.dev/services/registry"
)

// Config is the configuration of a cluster.
type Config struct {
	// DataDir is the directory for etcd's data; by default a temporary one that is removed at
	// the end.
	DataDir string
	// Listen is the gateway's address for REST and gRPC, AgentsListen for agents and
	// InternalListen for services. The defaults of the last two are free ports on loopback.
	Listen, AgentsListen, InternalListen string
	// LogFormat and LogLevel are for all parts.
	LogFormat, LogLevel string
	// Tracing is for all parts; none by default.
	Tracing tracing.Config
	// Bounded keeps less history, so that memory depends on the current state and not on the
	// number of past requests: see the constants.
	Bounded bool
}

// The history of a bounded cluster.
const (
	// maxEnded is the number of ended versions of reservations that are kept, for ten minutes
	// at most. A version with a few workers takes about 10 KiB in all parts.
	maxEnded = 10_000
	// maxEventBytes bounds the job events in etcd.
	maxEventBytes = 32 << 20
	// history is how long etcd keeps revisions. No part reads older ones: streams of events
	// resume from stored events.
	history = "1m"
	// raftEntries bounds the log that etcd keeps in memory for other members. There are none.
	raftEntries = 1000
)

// Cluster is a running cluster.
type Cluster struct {
	dir     string
	gateway process.Addresses
	etcd    *embedded.Etcd
	group   *process.Group
	ports   []*port.Held // the gateway's ports that Berth chose
	scratch string       // a directory to remove at the end
}

// startTimeout is how long a part may take to listen.
const startTimeout = 30 * time.Second

// Start starts the cluster. It returns when all parts listen; /readyz of the gateway reports when
// they lead.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{group: process.NewGroup(ctx)}
	dir := config.DataDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "berth-"); err != nil {
			return nil, err
		}
		c.scratch = dir
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c.dir = dir
	const anyPort = "127.0.0.1:0"
	config.AgentsListen, config.InternalListen = cmp.Or(config.AgentsListen, anyPort),
		cmp.Or(config.InternalListen, anyPort)
	for _, address := range []*string{&config.Listen, &config.AgentsListen, &config.InternalListen} {
		var err error
		if *address, err = c.choosePort(*address); err != nil {
			c.cleanup()
			return nil, err
		}
	}
	var err error
	if c.etcd, err = embedded.StartMember(ctx, dir, config.member()); err != nil {
		c.cleanup()
		return nil, err
	}
	if err := c.start(config); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// member returns the configuration of etcd.
func (config Config) member() embedded.Member {
	member := embedded.Alone()
	if config.Bounded {
		member.History, member.RaftEntries = history, raftEntries
	}
	return member
}

// service returns the common configuration of all services.
func (config Config) service(etcd string) process.Service {
	service := process.ServiceDefaults(0, 0)
	service.Listen, service.Etcd, service.Gateways, service.LogFormat, service.LogLevel = "127.0.0.1:0", []string{etcd},
		[]string{config.InternalListen}, config.LogFormat, config.LogLevel
	service.HTTPListen, service.Tracing = "127.0.0.1:0", config.Tracing
	if config.Bounded {
		service.EventMaxBytes = maxEventBytes
	}
	return service
}

func (config Config) registry(service process.Service) registry.Config {
	r := registry.Defaults()
	r.Service = service
	if config.Bounded {
		r.MaxEnded = maxEnded
	}
	return r
}

func (c *Cluster) start(config Config) error {
	service := config.service(c.etcd.Endpoint())
	inventory := executorstate.Defaults()
	inventory.Service = service
	dispatch := assigner.Defaults()
	dispatch.Service = service
	front := gateway.DefaultConfig()
	front.Listen, front.AgentsListen, front.InternalListen = config.Listen, config.AgentsListen, config.InternalListen
	front.Etcd, front.LogFormat, front.LogLevel, front.Tracing = service.Etcd, config.LogFormat, config.LogLevel,
		config.Tracing

	bound, err := run(c, "registry", registry.Run, config.registry(service))
	if err != nil {
		return err
	}
	front.Registry = []string{bound.Listen}
	if bound, err = run(c, "executor-state", executorstate.Run, inventory); err != nil {
		return err
	}
	front.ExecutorState = []string{bound.Listen}
	if bound, err = run(c, "assigner", assigner.Run, dispatch); err != nil {
		return err
	}
	front.Assigner = []string{bound.Listen}
	c.gateway, err = run(c, "gateway", gateway.Run, front)
	return err
}

// run starts a part and waits until it listens. It returns its addresses.
func run[C any](c *Cluster, name string, part func(context.Context, C, func(process.Addresses)) error,
	config C) (process.Addresses, error) {
	bound := make(chan process.Addresses, 1)
	failed := make(chan error, 1)
	c.group.Go(name, func(ctx context.Context) error {
		err := part(ctx, config, func(a process.Addresses) { bound <- a })
		failed <- err
		return err
	})
	select {
	case a := <-bound:
		return a, nil
	case err := <-failed:
		return process.Addresses{}, err
	case <-time.After(startTimeout):
		return process.Addresses{}, fmt.Errorf("%s does not listen after %v", name, startTimeout)
	}
}

// choosePort replaces port 0 in an address by a free port, which it holds: the services must know
// the gateway's address before the gateway runs.
func (c *Cluster) choosePort(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil || number != "0" {
		return address, nil // the gateway returns the error
	}
	held, err := port.Hold(cmp.Or(host, "127.0.0.1"))
	if err != nil {
		return "", err
	}
	c.ports = append(c.ports, held)
	return held.Address(), nil
}

func (c *Cluster) cleanup() {
	for _, held := range c.ports {
		held.Release()
	}
	if c.scratch != "" {
		os.RemoveAll(c.scratch)
	}
}

// Gateway returns the address for REST and gRPC, host:port.
func (c *Cluster) Gateway() string { return c.gateway.Listen }

// AgentsGateway returns the address for agents, host:port.
func (c *Cluster) AgentsGateway() string { return c.gateway.Agents }

// Dir returns the directory with the data.
func (c *Cluster) Dir() string { return c.dir }

// Etcd returns the endpoints of etcd.
func (c *Cluster) Etcd() []string { return []string{c.etcd.Endpoint()} }

// Stopping is closed when a part has failed or the cluster has to stop.
func (c *Cluster) Stopping() <-chan struct{} { return c.group.Stopping() }

// Close stops all parts, etcd last. It returns the error of a part that had failed.
func (c *Cluster) Close() error {
	c.group.Stop()
	err := c.group.Wait()
	c.etcd.Close()
	c.cleanup()
	return err
}
