// Package cluster runs a whole Berth in this process: embedded etcd, one
// replica of each service, and a gateway. They are the real thing, with real
// sockets between them.
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

// Config of a cluster.
type Config struct {
	// DataDir keeps etcd's data; a temporary one, removed at the end, unless
	// given.
	DataDir string
	// Listen is where the gateway serves REST and gRPC, AgentsListen where agents
	// call it and InternalListen where the services do: the last two on loopback, on
	// any port, unless given.
	Listen, AgentsListen, InternalListen string
	// LogFormat and LogLevel of all parts.
	LogFormat, LogLevel string
	// Tracing of all parts; none unless given.
	Tracing tracing.Config
	// Bounded keeps less of the past, so that memory depends on what is there and
	// not on how much there has been: see the constants.
	Bounded bool
}

// What a bounded cluster keeps of the past.
const (
	// maxEnded is how many versions of reservations that have ended are kept, for
	// ten minutes at most. One of a few workers takes some 10 KiB in all parts.
	maxEnded = 10_000
	// maxEventBytes bounds the job events in etcd.
	maxEventBytes = 32 << 20
	// history is how long etcd keeps revisions. Nothing here reads older ones:
	// streams of events are resumed from what is kept.
	history = "1m"
	// raftEntries bounds the log that etcd keeps in memory for members that fall
	// behind; there are none.
	raftEntries = 1000
)

// Cluster is a running Berth.
type Cluster struct {
	dir     string
	gateway process.Addresses
	etcd    *embedded.Etcd
	group   *process.Group
	held    []*port.Held // the gateway's ports, where Berth chose them
	scratch string       // a directory to be removed at the end
}

// startTimeout bounds how long a part may take to tell where it listens.
const startTimeout = 30 * time.Second

// Start starts the cluster. It answers when all parts listen; /readyz of the
// gateway tells when they lead.
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
	config.AgentsListen, config.InternalListen = cmp.Or(config.AgentsListen, anyPort), cmp.Or(config.InternalListen, anyPort)
	for _, address := range []*string{&config.Listen, &config.AgentsListen, &config.InternalListen} {
		var err error
		if *address, err = c.settle(*address); err != nil {
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

// service returns what the configurations of all services have in common.
func (config Config) service(etcd string) process.Service {
	service := process.ServiceDefaults(0, 0)
	service.Listen, service.Etcd, service.Gateways, service.LogFormat, service.LogLevel = "127.0.0.1:0", []string{etcd}, []string{config.InternalListen}, config.LogFormat, config.LogLevel
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
	replicas := map[string]func(context.Context, func(process.Addresses)) error{
		"registry": func(ctx context.Context, told func(process.Addresses)) error {
			return registry.Run(ctx, config.registry(service), told)
		},
		"executor-state": func(ctx context.Context, told func(process.Addresses)) error {
			config := executorstate.Defaults()
			config.Service = service
			return executorstate.Run(ctx, config, told)
		},
		"assigner": func(ctx context.Context, told func(process.Addresses)) error {
			config := assigner.Defaults()
			config.Service = service
			return assigner.Run(ctx, config, told)
		},
	}
	front := gateway.DefaultConfig()
	front.Listen, front.AgentsListen, front.InternalListen = config.Listen, config.AgentsListen, config.InternalListen
	front.Etcd, front.LogFormat, front.LogLevel, front.Tracing = service.Etcd, config.LogFormat, config.LogLevel, config.Tracing
	for name, part := range map[string]*[]string{
		"registry": &front.Registry, "executor-state": &front.ExecutorState, "assigner": &front.Assigner,
	} {
		bound, err := c.run(name, replicas[name])
		if err != nil {
			return err
		}
		*part = []string{bound.Listen}
	}
	bound, err := c.run("gateway", func(ctx context.Context, told func(process.Addresses)) error {
		return gateway.Run(ctx, front, told)
	})
	c.gateway = bound
	return err
}

// run starts a part and waits until it tells where it listens.
func (c *Cluster) run(name string, part func(context.Context, func(process.Addresses)) error) (process.Addresses, error) {
	told := make(chan process.Addresses, 1)
	failed := make(chan error, 1)
	c.group.Go(name, func(ctx context.Context) error {
		err := part(ctx, func(a process.Addresses) { told <- a })
		failed <- err
		return err
	})
	select {
	case a := <-told:
		return a, nil
	case err := <-failed:
		return process.Addresses{}, err
	case <-time.After(startTimeout):
		return process.Addresses{}, fmt.Errorf("%s does not listen after %v", name, startTimeout)
	}
}

// settle holds a port where the address leaves it open: the services have to
// know where the gateway will be before it runs.
func (c *Cluster) settle(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil || number != "0" {
		return address, nil // the gateway says what is wrong with it
	}
	held, err := port.Hold(cmp.Or(host, "127.0.0.1"))
	if err != nil {
		return "", err
	}
	c.held = append(c.held, held)
	return held.Address(), nil
}

func (c *Cluster) cleanup() {
	for _, held := range c.held {
		held.Release()
	}
	if c.scratch != "" {
		os.RemoveAll(c.scratch)
	}
}

// Gateway is where REST and gRPC are served, host:port.
func (c *Cluster) Gateway() string { return c.gateway.Listen }

// AgentsGateway is where agents call the gateway, host:port.
func (c *Cluster) AgentsGateway() string { return c.gateway.Agents }

// Dir is the directory that keeps the data.
func (c *Cluster) Dir() string { return c.dir }

// Etcd lists etcd's endpoints.
func (c *Cluster) Etcd() []string { return []string{c.etcd.Endpoint()} }

// Stopping is closed when a part has failed or the cluster is to stop.
func (c *Cluster) Stopping() <-chan struct{} { return c.group.Stopping() }

// Close stops all parts, etcd last. It answers why, if one had failed.
func (c *Cluster) Close() error {
	c.group.Stop()
	err := c.group.Wait()
	c.etcd.Close()
	c.cleanup()
	return err
}
