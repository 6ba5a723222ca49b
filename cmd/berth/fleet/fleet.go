// Package fleet runs a Berth cluster as real processes on this machine. Each process can be
// killed, stopped and restarted at the same address, and Close stops all processes.
//
// The replicas of every service, the gateways and the agents are child processes. etcd runs
// in this process or as child processes. The demo, the benchmarks and the tests on real
// processes use the package.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"berth.dev/client"
	"berth.dev/cmd/berth/internal/embedded"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/process/port"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

// Config is the configuration of a fleet.
type Config struct {
	// Binary is the program `berth`. Program, if set, returns the program of a process by
	// its name.
	Binary  string
	Program func(name string) string
	// Dir is the directory for data, logs and workers. It must exist.
	Dir string
	// Replicas is the number of replicas of each service, default 2. Gateways is the number
	// of gateways, default 1.
	Replicas, Gateways int
	// TTL is the TTL of the leaders' etcd leases. The default is the default of the
	// services.
	TTL time.Duration
	// LogLevel is the log level of the processes; default info.
	LogLevel string
	// Etcd is the number of members of etcd. Each member is a separate process, which can be
	// killed and whose cost can be measured. 0 runs one member in this process.
	Etcd int
	// Seed, if not nil, writes to etcd before any other process starts.
	Seed func(ctx context.Context, etcd []string) error
	// Via returns the address at which the process from reaches the process to, which
	// listens on address. A proxy at the returned address can cut the link between them. The
	// default returns address. from and to are names of processes: etcd-0, registry-0,
	// gateway-0, an agent's ID. from has other values in three cases:
	//
	//   - "orders" for start and stop requests to an agent
	//   - "proof" for an address that replicas read from the records, such as the address for
	//     the liveness probe of an old leader
	//   - "peers" for links between members of etcd: all members reach a member at the same
	//     address
	Via func(from, to, address string) (string, error)
	// Place returns the place of the process with a name. By default processes listen on
	// loopback.
	Place func(name string) (Place, error)
	// Flags has additional flags of replicas and gateways, by service. Every replica and
	// gateway gets the flags of "". Agents and simulated executors get the flags of "agent",
	// and the members of etcd get the flags of "etcd". A process also gets the flags of its
	// name, such as gateway-0.
	Flags map[string][]string
	// TLS is the --tls-mode of all processes, for which the fleet issues certificates. etcd
	// requires certificates of clients too. By default everything is in plain text.
	TLS transport.Mode
	// Hosts has the hosts of the addresses that Via returns, for the certificates. They
	// include loopback and the hosts of Place.
	Hosts []string
}

// Place is the network address and the command with which a process runs.
type Place struct {
	// Host is the IP address on which the process listens. No other process uses it. The
	// default is loopback with reserved ports.
	Host string
	// Command is the start of a command line, such as "ip netns exec NAME". The fleet
	// appends the program and its arguments.
	Command []string
}

// Services lists the services in the order in which they start.
var Services = model.Services

// Fleet is a running Berth cluster.
type Fleet struct {
	config           Config
	etcd             *embedded.Etcd   // nil if its members are child processes
	members          []*child.Process // of etcd
	etcds            []string         // etcd's endpoints
	initial          string           // etcd's --initial-cluster
	replicas         map[string][]*child.Process
	gateways         []*child.Process
	agents           map[string]*child.Process
	programs         map[*child.Process]program
	security         *security
	ports            []*port.Held // ports that other processes know before they are in use
	gatewayAddresses []process.Addresses
	client           *client.Client
	clients          []*client.Client // the current client and the earlier ones
}

const (
	// stopTimeout bounds the time in which the processes of one kind stop.
	stopTimeout = 15 * time.Second
	// pollEvery is the interval between two requests for the current leader.
	pollEvery = 50 * time.Millisecond
)

// Start starts etcd, the services and the gateways.
func Start(ctx context.Context, config Config) (*Fleet, error) {
	config.Replicas, config.Gateways, config.LogLevel = cmp.Or(config.Replicas, 2), cmp.Or(config.Gateways, 1),
		cmp.Or(config.LogLevel, "info")
	if config.Via == nil {
		config.Via = func(_, _, address string) (string, error) { return address, nil }
	}
	if config.Program == nil {
		config.Program = func(string) string { return config.Binary }
	}
	if config.Place == nil {
		config.Place = func(string) (Place, error) { return Place{}, nil }
	}
	f := &Fleet{config: config, replicas: map[string][]*child.Process{}, agents: map[string]*child.Process{},
		programs: map[*child.Process]program{}, security: newSecurity(config.Dir, config.Hosts)}
	if err := f.start(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) (err error) {
	if err := f.SetTLS(f.config.TLS); err != nil {
		return err
	}
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	if f.config.Seed != nil {
		if err := f.config.Seed(ctx, f.Etcd()); err != nil {
			return err
		}
	}
	// The services need the addresses of the gateways, although the gateways start last.
	for i := range f.config.Gateways {
		var addresses process.Addresses
		for n, address := range []*string{&addresses.Listen, &addresses.Agents, &addresses.Internal} {
			if *address, err = f.address(fmt.Sprintf("gateway-%d", i), n); err != nil {
				return err
			}
		}
		f.gatewayAddresses = append(f.gatewayAddresses, addresses)
	}
	for _, service := range Services {
		for i := range f.config.Replicas {
			name := fmt.Sprintf("%s-%d", service, i)
			etcds, err := f.viaEtcd(name)
			if err != nil {
				return err
			}
			gateways, err := f.via(name, model.ServiceGateway, f.InternalGateways())
			if err != nil {
				return err
			}
			listen, err := f.address(name, 0)
			if err != nil {
				return err
			}
			advertise, err := f.config.Via("proof", name, listen)
			if err != nil {
				return err
			}
			args := []string{service, "--replica", name, "--listen", listen, "--advertise", advertise,
				"--etcd-endpoints", etcds, "--gateways", gateways, "--log-level", f.config.LogLevel}
			if f.config.TTL != 0 {
				args = append(args, "--ttl", f.config.TTL.String())
			}
			id := identity.Identity{Cluster: Cluster, Role: identity.Service, Name: name}
			p, err := f.process(name, id, f.flagged(service, args), "--http-listen")
			if err != nil {
				return err
			}
			f.replicas[service] = append(f.replicas[service], p)
			if err := f.Restart(ctx, p); err != nil {
				return err
			}
		}
	}
	for i, addresses := range f.gatewayAddresses {
		name := fmt.Sprintf("gateway-%d", i)
		etcds, err := f.viaEtcd(name)
		if err != nil {
			return err
		}
		args := []string{"gateway", "--replica", name, "--listen", addresses.Listen, "--agents-listen", addresses.Agents,
			"--internal-listen", addresses.Internal,
			"--etcd-endpoints", etcds, "--log-level", f.config.LogLevel}
		for _, service := range Services {
			replicas, err := f.via(name, service, f.addresses(service))
			if err != nil {
				return err
			}
			args = append(args, "--"+service, replicas)
		}
		id := identity.Identity{Cluster: Cluster, Role: identity.Gateway, Name: name}
		p, err := f.process(name, id, f.flagged(model.ServiceGateway, args))
		if err != nil {
			return err
		}
		f.gateways = append(f.gateways, p)
		if err := f.Restart(ctx, p); err != nil {
			return err
		}
	}
	return f.dial()
}

// flagged appends the configured flags of a service.
func (f *Fleet) flagged(service string, args []string) []string {
	common := f.config.Flags[""]
	if service == "etcd" {
		common = nil
	}
	return slices.Concat(args, common, f.config.Flags[service])
}

// viaEtcd returns the endpoints at which a process reaches etcd.
func (f *Fleet) viaEtcd(from string) (string, error) {
	list, err := f.via(from, "etcd", f.etcds)
	scheme := f.security.scheme()
	return scheme + strings.ReplaceAll(list, ",", ","+scheme), err
}

// via returns the addresses at which a process reaches all processes of a kind.
func (f *Fleet) via(from, kind string, addresses []string) (string, error) {
	var list []string
	for i, address := range addresses {
		reached, err := f.config.Via(from, fmt.Sprintf("%s-%d", kind, i), address)
		if err != nil {
			return "", err
		}
		list = append(list, reached)
	}
	return strings.Join(list, ","), nil
}

func (f *Fleet) addresses(service string) []string {
	var list []string
	for _, p := range f.replicas[service] {
		list = append(list, p.Addresses().Listen)
	}
	return list
}

// Agent returns the process of the agent with an ID, or of the simulated executors with a
// prefix.
func (f *Fleet) Agent(id string) *child.Process { return f.agents[id] }

// GatewayProcess returns the process of the i-th gateway.
func (f *Fleet) GatewayProcess(i int) *child.Process { return f.gateways[i] }

// Replica returns the process of the i-th replica of a service.
func (f *Fleet) Replica(service string, i int) *child.Process { return f.replicas[service][i] }

// Processes returns the child processes by kind: the name of a service, "gateway",
// "agents", and "etcd" if its members are child processes.
func (f *Fleet) Processes() map[string][]*child.Process {
	all := maps.Clone(f.replicas)
	all[model.ServiceGateway] = f.gateways
	all["agents"] = slices.Collect(maps.Values(f.agents))
	if len(f.members) > 0 {
		all["etcd"] = f.members
	}
	return all
}

// Leader waits until a service has a leader and returns its process and term.
func (f *Fleet) Leader(ctx context.Context, service string) (*child.Process, int64, error) {
	for answered := false; ; answered = true {
		p, term, err := f.leader(ctx, service)
		if p != nil {
			return p, term, nil
		}
		// If an earlier request returned no leader and ctx ended this request, the error "no
		// leader" is more useful than the error of this request.
		if err != nil && (!answered || ctx.Err() == nil) {
			return nil, 0, err
		}
		if err := store.Sleep(ctx, pollEvery); err != nil {
			return nil, 0, fmt.Errorf("%s has no leader: %w", service, err)
		}
	}
}

// leader returns the current leader of a service and its term, or nil.
func (f *Fleet) leader(ctx context.Context, service string) (*child.Process, int64, error) {
	answer, err := f.client.Leaders(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range answer.GetServices() {
		if s.GetService() != service {
			continue
		}
		for _, p := range f.replicas[service] {
			if p.Name == s.GetLeader() {
				return p, s.GetTerm(), nil
			}
		}
	}
	return nil, 0, nil
}

// Gateway returns the address of the first gateway, for REST and gRPC.
func (f *Fleet) Gateway() string { return f.gatewayAddresses[0].Listen }

// Gateways returns the addresses of all gateways.
func (f *Fleet) Gateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Listen })
}

// AgentsGateways returns the addresses of the gateways for agents.
func (f *Fleet) AgentsGateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Agents })
}

// InternalGateways returns the addresses of the gateways for the services.
func (f *Fleet) InternalGateways() []string {
	return f.listeners(func(a process.Addresses) string { return a.Internal })
}

func (f *Fleet) listeners(of func(process.Addresses) string) []string {
	var list []string
	for _, addresses := range f.gatewayAddresses {
		list = append(list, of(addresses))
	}
	return list
}

// Client returns a client of the gateways. With TLS it is an operator.
func (f *Fleet) Client() *client.Client { return f.client }

// each calls a function for all processes concurrently and returns the errors.
func each(processes []*child.Process, call func(*child.Process) error) error {
	failures := make([]error, len(processes))
	var calls sync.WaitGroup
	for i, p := range processes {
		calls.Go(func() { failures[i] = call(p) })
	}
	calls.Wait()
	return errors.Join(failures...)
}

// Close stops agents, gateways, services and etcd, in this order.
func (f *Fleet) Close() error {
	var all []error
	for _, c := range f.clients {
		all = append(all, c.Close())
	}
	f.security.close()
	stop := func(processes []*child.Process) {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		all = append(all, each(processes, func(p *child.Process) error { return p.Stop(ctx) }))
	}
	stop(slices.Collect(maps.Values(f.agents)))
	stop(f.gateways)
	for _, service := range Services {
		stop(f.replicas[service])
	}
	if f.etcd != nil {
		f.etcd.Close()
	}
	// On SIGTERM an etcd leader waits until another member becomes the leader. Because all
	// members stop here, the leader would wait until its time limit. The data on disk is
	// also consistent after a kill.
	for _, p := range f.members {
		p.Kill()
	}
	for _, held := range f.ports {
		held.Release()
	}
	return errors.Join(all...)
}
