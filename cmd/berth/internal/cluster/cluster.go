// Package cluster runs a whole cluster in this process, and stops all its parts when one
// fails: the parts are embedded etcd, one replica of each service, and a gateway. They
// are connected by real sockets. Each part serves the metrics of all parts.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
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
	// DataDir is the directory for etcd's data. The default is a temporary directory, which
	// Close removes.
	DataDir string
	// Listen is the address on which the gateway serves REST and gRPC. AgentsListen is its
	// address for agents, and InternalListen its address for services. The defaults of
	// AgentsListen and InternalListen are free ports on loopback.
	Listen, AgentsListen, InternalListen string
	// LogFormat and LogLevel apply to all parts.
	LogFormat, LogLevel string
	// Security, if set, returns the security of each part by its role and its name: the
	// names of the services, and gateway. EtcdSecurity secures etcd.
	Security     func(role identity.Role, name string) (process.Security, error)
	EtcdSecurity embedded.Security
	// Access is the access file of all parts.
	Access string
	// Tracing applies to all parts; by default nothing is traced.
	Tracing tracing.Config
	// Bounded limits the stored history, so that the used memory depends on the current
	// state and not on the number of past requests. The constants below are the limits.
	Bounded bool

	metrics *process.Metrics // of all parts
}

// The limits of a bounded cluster.
const (
	// maxEnded is the maximum number of ended versions of reservations that the registry
	// keeps, each for at most ten minutes. A version with a few workers uses about 10 KiB in
	// all parts together.
	maxEnded = 10_000
	// maxEventBytes is the maximum size of the job events in etcd.
	maxEventBytes = 32 << 20
	// history is how long etcd keeps revisions. No part reads older revisions: streams of
	// events resume from stored events.
	history = "1m"
	// raftEntries bounds the log that etcd keeps in memory for other members. It can be
	// small, because there are no other members.
	raftEntries = 1000
)

// Cluster is a running cluster.
type Cluster struct {
	dir     string
	gateway process.Addresses
	etcd    *embedded.Etcd
	group   *process.Group
	ports   []*port.Held // ports of the gateway that choosePort chose
	scratch string       // temporary directory that cleanup removes
}

// startTimeout is the time within which a part must listen.
const startTimeout = 30 * time.Second

// Start starts the cluster. It returns when all parts listen. /readyz of the gateway
// reports whether the gateway has what it needs.
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
	for _, l := range []struct {
		flag    string
		address *string
	}{
		{"--listen", &config.Listen}, {"--agents-listen", &config.AgentsListen},
		{"--internal-listen", &config.InternalListen},
	} {
		chosen, err := c.choosePort(*l.address)
		if err != nil {
			c.cleanup()
			return nil, process.CannotListen(l.flag, *l.address, err)
		}
		*l.address = chosen
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
	member.Security = config.EtcdSecurity
	return member
}

// name returns the name of the cluster, which all parts have by default.
func (config Config) name() string { return process.Defaults(0, 0).Cluster }

// service returns the common configuration of all services.
func (config Config) service(etcd string, name string) (process.Service, error) {
	service := process.ServiceDefaults(0, 0)
	service.Listen, service.Etcd, service.Gateways, service.LogFormat, service.LogLevel = "127.0.0.1:0", []string{etcd},
		[]string{config.InternalListen}, config.LogFormat, config.LogLevel
	service.HTTPListen, service.Tracing, service.Metrics = "127.0.0.1:0", config.Tracing, config.metrics
	if config.Bounded {
		service.EventMaxBytes = maxEventBytes
	}
	var err error
	service.Common, err = config.secure(service.Common, identity.Service, name)
	return service, err
}

// secure adds the security of a part to its configuration.
func (config Config) secure(common process.Common, role identity.Role, name string) (process.Common, error) {
	if config.Security == nil {
		return common, nil
	}
	var err error
	common.Access = config.Access
	common.Security, err = config.Security(role, name)
	etcd := config.EtcdSecurity
	common.EtcdCert, common.EtcdKey, common.EtcdCA = etcd.ClientCert, etcd.ClientKey, etcd.CA
	return common, err
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
	services := map[string]process.Service{}
	var err error
	if config.metrics, err = process.NewMetrics(config.name); err != nil {
		return err
	}
	for _, name := range model.Services {
		if services[name], err = config.service(c.etcd.Endpoint(), name); err != nil {
			return err
		}
	}
	inventory := executorstate.Defaults()
	inventory.Service = services[model.ServiceExecutorState]
	dispatch := assigner.Defaults()
	dispatch.Service = services[model.ServiceAssigner]
	front := gateway.DefaultConfig()
	front.Listen, front.AgentsListen, front.InternalListen = config.Listen, config.AgentsListen, config.InternalListen
	front.Etcd, front.LogFormat, front.LogLevel, front.Tracing, front.Metrics = inventory.Etcd, config.LogFormat,
		config.LogLevel, config.Tracing, config.metrics
	if front.Common, err = config.secure(front.Common, identity.Gateway, model.ServiceGateway); err != nil {
		return err
	}

	bound, err := run(c, "registry", registry.Run, config.registry(services[model.ServiceRegistry]))
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

// run starts a part and waits until the part listens. It returns the addresses of the part.
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

// choosePort replaces port 0 in an address with a free port and reserves the port,
// because the services must know the gateway's address before the gateway runs.
func (c *Cluster) choosePort(address string) (string, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil || number != "0" {
		return address, nil // if the address is invalid, the gateway returns the error
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

// Dir returns the data directory.
func (c *Cluster) Dir() string { return c.dir }

// Etcd returns the endpoint of etcd.
func (c *Cluster) Etcd() string { return c.etcd.Endpoint() }

// Stopping returns a channel that is closed when a part has failed or the cluster must stop.
func (c *Cluster) Stopping() <-chan struct{} { return c.group.Stopping() }

// Close stops all parts, etcd last. If a part had failed, Close returns the error of that
// part.
func (c *Cluster) Close() error {
	c.group.Stop()
	err := c.group.Wait()
	c.etcd.Close()
	c.cleanup()
	return err
}
